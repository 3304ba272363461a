"""Event time: clocks, whom they trust, lateness and what expires."""
