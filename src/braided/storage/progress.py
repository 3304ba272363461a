"""How far a stream has come, as its writer says it: in the manifests of a topic, and from there to its readers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Progress:
    """What is promised of a time column from here on, in microseconds.

    until : no row before this time comes any more that is not late; one that comes is late for its readers too.
    lateness : K, how late the writer expects its own input.
    delay : D, how far behind its input's horizon results may be dated.
    """

    until: int
    lateness: int = 0
    delay: int = 0

    @property
    def spread(self) -> int:
        """How far behind the largest time seen a row may be, as the writer knows."""
        return self.lateness + self.delay


def to_text(progress: Mapping[str, Progress]) -> str:
    """Return the progress of time columns as text.

    >>> to_text({"ts": Progress(90, 10)})
    '{"ts":{"until":90,"lateness":10,"delay":0}}'
    """
    return json.dumps({name: asdict(one) for name, one in progress.items()}, separators=(",", ":"))


def from_text(text: str) -> dict[str, Progress]:
    """Return what `to_text` was given; ValueError, KeyError or TypeError for other text."""
    return {str(name): read_progress(one) for name, one in json.loads(text).items()}


def read_progress(fields: Mapping[str, int]) -> Progress:
    """Return one column's progress from its fields as JSON has them."""
    return Progress(int(fields["until"]), int(fields["lateness"]), int(fields["delay"]))


def combine(parts: Iterable[Mapping[str, Progress]]) -> dict[str, Progress]:
    """Return what all workers together promise: the least of each column; nothing of one that some say nothing of.

    >>> combine([{"t": Progress(5, 1)}, {"t": Progress(3, 2)}])
    {'t': Progress(until=3, lateness=2, delay=0)}
    >>> combine([{"t": Progress(5)}, {}])
    {}
    """
    parts = list(parts)
    names = [name for name in (parts[0] if parts else ()) if all(name in part for part in parts)]
    return {
        name: Progress(
            min(part[name].until for part in parts),
            max(part[name].lateness for part in parts),
            max(part[name].delay for part in parts),
        )
        for name in names
    }
