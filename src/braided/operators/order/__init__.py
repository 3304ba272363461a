"""Streams put in order of event time."""
