"""Generated streams of the demo, seeded, vectorised, in order of arrival; and a measure of how far samples are off."""
