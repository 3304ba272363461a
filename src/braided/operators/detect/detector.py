"""What a user writes: a detector, which sees the events of a key, or of many keys at once, and publishes others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from braided.durations import Duration
    from braided.time.lateness import Lateness
    from braided.typing import DetectorState


class Declared:
    """What every detector declares: see `Detector`."""

    subscribes: str | Sequence[str] = ()
    publishes: str = ""
    schema: str | pa.Schema = ""
    delay: Duration | Lateness | None = None
    forget: Duration | None = None


class Detector(Declared):
    """Sees the events of one key, in order of time, and publishes events of one type.

    Every key has its own instance: a copy of the one that was given, with the state that `save` returned last.
    Parameters go to ``__init__``. Events come in batches of any size, independent of the query's batches; all events of
    one time come in one batch. So the output must not depend on where batches are cut: `braided.testing.check_detector`
    tests this.

    subscribes : the event types that it sees, of the streams and of other detectors.
    publishes : the event type that it publishes.
    schema : the columns of what it publishes, as in ``"time timestamp, player int"``, or a `pyarrow.Schema`. The time
        column has the name given by `time=`. The key is added to it.
    delay : how much earlier than the event that triggers it a published event may be dated: a duration, or a
        `braided.Lateness`, which defines how it is learned. None: it is learned.
    forget : after this long without an event the state of a key is removed, and its next event gets a new instance.
        None: never; then `save` must return None for keys that need no state, or states grow with the number of keys.

    >>> import pyarrow as pa
    >>> import pyarrow.compute as pc
    >>> class Hot(Detector):
    ...     subscribes = ("reading",)
    ...     publishes = "hot"
    ...     schema = "ts timestamp, degrees double"
    ...     def on_events(self, events):
    ...         return events.filter(pc.greater(events["degrees"], 30.0)).select(["ts", "degrees"])
    >>> Hot().publishes
    'hot'
    """

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        """Take the next events and return the events that are now certain; None for no event.

        `events` has the columns ``type``, the key, the time, ``at``, and those of all types that it subscribes to, null
        where an event's type lacks a column. Events are in order of time; those of one time in the order of
        `subscribes`. What is returned has the columns of `schema`, and ``at`` where an event is dated earlier than the
        one that triggered it: the time of that one. Without the column, ``at`` is the time.
        """
        raise NotImplementedError

    def save(self) -> DetectorState:
        """Return the state of a key: plain JSON, an Arrow batch or an Arrow table; None to forget the key."""
        return None

    def load(self, state: DetectorState) -> None:
        """Take what `save` returned, in a new instance."""


class KeyedDetector(Declared):
    """Sees the events of many keys at once, with Arrow's or numpy's functions instead of a call for each key.

    It declares what a `Detector` declares, and the columns of a key's `state`. Events have a first column ``group``:
    the number of the key among those of the batch, from 0. Rows of a key come together, in order of time. What it
    publishes has the column ``group`` too, in any order. The state is a batch with ``group`` and the columns of
    `state`: one row for each key that has one. A key that was forgotten within a batch has one group for the events
    before, and one for those after.

    >>> class Count(KeyedDetector):
    ...     subscribes, publishes = "reading", "count"
    ...     schema, state = "ts timestamp, n bigint", "n bigint"
    """

    state: str | pa.Schema = ""

    def on_events(
        self, events: pa.RecordBatch, state: pa.RecordBatch
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        """Take the next events and the state of their keys; return what is published, and the keys' new state.

        A key that is missing from the new state is forgotten.
        """
        raise NotImplementedError
