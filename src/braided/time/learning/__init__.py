"""Learn a lateness from the delays of a stream's rows."""
