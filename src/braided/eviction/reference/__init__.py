"""The best that any policy could do, for tests and benchmarks."""
