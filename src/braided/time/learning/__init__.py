"""Learning a lateness from the delays that a stream shows."""
