"""The contract of an operator, and the halves of a batch that no runtime does differently."""
