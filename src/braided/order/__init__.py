"""Event time: clocks, lateness and what expires."""
