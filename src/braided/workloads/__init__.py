"""Generated streams for demos, tests and benchmarks: seeded, vectorised, in order of arrival."""
