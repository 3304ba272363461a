"""The exact window join: runs, probe kernels, predicates and the operator itself."""
