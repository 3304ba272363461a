"""The as-of join: each left row with the closest right row of its key."""
