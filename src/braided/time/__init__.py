"""Event time: clocks, which times they trust, lateness, and when rows expire."""
