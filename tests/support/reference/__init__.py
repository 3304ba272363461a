"""What no operator runs: readings of definitions, and the best that any policy could do."""
