"""The operators: one folder each, with its spec, its builder, its processing and its state."""
