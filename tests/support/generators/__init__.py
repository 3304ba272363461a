"""Generated streams of tests and benchmarks: seeded, vectorised, in order of time or arrival."""
