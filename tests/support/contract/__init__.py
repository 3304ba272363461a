"""The contract that every operator is held to: cases, histories, checks."""
