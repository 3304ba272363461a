"""Streams put in order of event time, as a user asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from braided.errors import OptionError
from braided.operators.shared_options import DefaultDuration, WithLateness
from braided.operators.spec import option
from braided.typing import Duration, Keys, Late

DEFAULT_IDLE = DefaultDuration("30 seconds")
LATE_WAYS = ("flag", "drop", "side")


@dataclass(frozen=True, kw_only=True)
class OrderSpec(WithLateness):
    """One stream or several of one schema in order of event time, per key or as a whole.

    >>> OrderSpec(time="ts", inputs=2).labels
    ('input 0', 'input 1')
    """

    kind: ClassVar[str] = "order"

    inputs: int = 1
    time: str = option("The event-time column.")
    key: Keys = option(
        "The column, or columns, within whose values rows are put in order. None: the stream as a whole, on one "
        "worker, with a gap-free column ``seq``.",
        default=None,
    )
    late: Late = option(
        'What happens to a row that comes after later ones have left: ``"flag"`` sends it on at once with '
        '``late=True`` in a further column, ``"drop"`` counts and drops it, ``"side"`` makes the result a pair, the '
        "ordered rows and the late ones. (Two queries over the pair read the source twice; to write both from one "
        'query, use ``"flag"`` and split in `foreachBatch`.)',
        default="flag",
    )
    idle: Duration | None = option(
        "An input that has been silent for so long, judged by the batches' timestamps, no longer holds the others "
        "back; should it return with older rows, they are late. If all are silent, what waits leaves; on Spark, where "
        "no batch runs then, only if this is written. None: they always wait.",
        default=DEFAULT_IDLE,
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return ("input",) if self.inputs == 1 else tuple(f"input {number}" for number in range(self.inputs))

    def time_of(self, stream: int) -> object:
        return self.time

    def check(self) -> None:
        if self.late not in LATE_WAYS:
            raise OptionError(f"late={self.late!r}: write 'flag', 'drop' or 'side'")
        super().check()
