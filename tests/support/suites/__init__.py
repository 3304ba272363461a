"""Cases of the test suites of other engines, as data."""
