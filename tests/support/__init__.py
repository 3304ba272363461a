"""What tests share: streams, oracles, cases, and processes that they start."""
