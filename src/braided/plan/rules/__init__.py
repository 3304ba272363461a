"""One rule of the optimiser per file."""
