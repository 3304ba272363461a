"""The rules of the optimiser, one per file."""
