"""The progress of a topic's stream: its writer stores it in the manifests, and readers use it as their clock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Progress:
    """The promise of a writer for a time column, in microseconds.

    until : rows before this time that come later are late, for readers too.
    lateness : K, the lateness that the writer expects of its own input.
    delay : D, how far behind the horizon of its input the times of results may be.
    """

    until: int
    lateness: int = 0
    delay: int = 0

    @property
    def spread(self) -> int:
        """How far behind the largest time seen a row may be."""
        return self.lateness + self.delay


def to_text(progress: Mapping[str, Progress]) -> str:
    """Return the progress of time columns as text.

    >>> to_text({"ts": Progress(90, 10)})
    '{"ts":{"until":90,"lateness":10,"delay":0}}'
    """
    return json.dumps({name: asdict(one) for name, one in progress.items()}, separators=(",", ":"))


def from_text(text: str) -> dict[str, Progress]:
    """Read the text that `to_text` returned; raises ValueError, KeyError or TypeError for other text."""
    return {str(name): read_progress(one) for name, one in json.loads(text).items()}


def read_progress(fields: Mapping[str, int]) -> Progress:
    """Return one column's progress from its JSON fields."""
    return Progress(int(fields["until"]), int(fields["lateness"]), int(fields["delay"]))


def combine(parts: Iterable[Mapping[str, Progress]]) -> dict[str, Progress]:
    """Return the progress of all workers together: the smallest for each column that all workers have.

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
