"""K-slack row by row, which tests and benchmarks compare the operators with."""
