"""The exceptions that Braided raises: one base class, and a subclass for each kind that callers may handle."""


class BraidedError(ValueError):
    """The input, an option, the state or a control directory is not valid; the message says what to do."""


class OptionError(BraidedError):
    """An option, a column or an input is not accepted. No query was started."""


class StateError(BraidedError):
    """The state in a checkpoint does not fit the query: other options, another version, or damaged files."""


class ControlError(BraidedError):
    """A control directory cannot be used: it belongs to another query, is damaged, or cannot be reached."""


class TopicError(BraidedError):
    """A topic cannot be read or written: it is damaged, of another query or version, or has another writer now."""


class TableError(BraidedError):
    """A Delta or Iceberg table cannot be read or written: another schema, or a feature that is not supported."""


class PeerError(BraidedError):
    """A fleet of peers does not accept a message, a lease, a component or a placement."""


class DetectorError(BraidedError):
    """A detector raised, or returned an invalid result; the message names it, its batch and its first event."""


class JobError(BraidedError):
    """A job file is not accepted; the message names the line and the key."""


class HistoryError(BraidedError):
    """The history of a query cannot be read or written: it is missing, damaged, or another kind of file."""
