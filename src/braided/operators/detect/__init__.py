"""Hierarchies of detectors: they subscribe to event types, see events in order, and publish an event type each."""
