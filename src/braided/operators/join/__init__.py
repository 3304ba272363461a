"""The exact window join: runs, probe kernels and the operator itself."""
