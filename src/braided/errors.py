"""What Braided raises: one base, and a kind for each thing that a caller may want to treat in its own way."""


class BraidedError(ValueError):
    """The input, an option, the state or a control directory is not what it must be; the message says what to do."""


class OptionError(BraidedError):
    """An option, a column or an input that cannot be accepted. Nothing has been started."""


class StateError(BraidedError):
    """What a checkpoint holds does not fit the query: other options, another version, damage."""


class ControlError(BraidedError):
    """A control directory that cannot be used: of another query, damaged, out of reach."""


class TopicError(BraidedError):
    """A topic that cannot be read or written: damaged, of another query or version, taken over by another writer."""


class TableError(BraidedError):
    """A Delta or Iceberg table that cannot be read or written: another schema, a feature that is not known here."""


class PeerError(BraidedError):
    """A fleet of peers: a message, a lease, a component or a placement that cannot be accepted."""


class DetectorError(BraidedError):
    """A detector that raised, or returned what it must not; the message names it, its batch and its first event."""


class JobError(BraidedError):
    """A job file that cannot be accepted; the message has the line and the key."""


class HistoryError(BraidedError):
    """A history of a query that cannot be read or written: not there, damaged, of something else."""
