"""A simulated cluster, driven by the same policies as a real one, and the figures of the papers made with it."""
