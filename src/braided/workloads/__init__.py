"""Seeded, vectorised generators of the demo's streams, in order of arrival; and a measure of the error of samples."""
