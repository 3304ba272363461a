"""A simulated cluster, driven by the same policies as a real one, and the papers' figures that it reproduces."""
