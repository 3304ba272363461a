"""Bounded buffers: they store the rows of a window that fit into a budget; a policy chooses which."""
