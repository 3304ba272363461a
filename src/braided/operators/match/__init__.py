"""Search for patterns in ordered rows."""
