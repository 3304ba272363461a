"""The options of putting streams in order of event time."""

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
        "The column, or columns, of the key: rows are put in order for each key. None: the stream as a whole, on one "
        "worker, with a gap-free column ``seq``.",
        default=None,
    )
    late: Late = option(
        'What happens to a row that comes after later rows were returned: ``"flag"`` returns it at once with '
        '``late=True`` in a further column, ``"drop"`` drops and counts it, ``"side"`` returns a pair, the ordered '
        "rows and the late rows. (Two queries over the pair read the source twice; to write both from one "
        'query, use ``"flag"`` and split in `foreachBatch`.)',
        default="flag",
    )
    idle: Duration | None = option(
        "Once an input has been silent for this long, measured by the batches' timestamps, the other inputs no longer "
        "wait for it. If it returns with older rows, they are late. Once all inputs are silent, waiting rows are "
        "released; on Spark, where no batch runs then, only if this option is given. None: inputs always wait.",
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
