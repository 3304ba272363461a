"""The one exception that Braided raises for input it cannot accept."""


class BraidedError(ValueError):
    """Bad input or a query that cannot go on; the message names the parameter, the value and what to do."""
