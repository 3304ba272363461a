"""The options of a hierarchy of detectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from braided.errors import OptionError
from braided.operators.bounded.group_spec import each_stream
from braided.operators.detect.arranging import arrange
from braided.operators.detect.detector import Detector, KeyedDetector
from braided.operators.match.spec import MatchSpec
from braided.operators.shared_options import WithIdle
from braided.operators.spec import frozen, option
from braided.typing import AnyDetector, Duration, Keys, NamedLatenesses

MOST_STREAMS = 8
MOST_DETECTORS = 64


@dataclass(frozen=True)
class Pattern:
    """A pattern as a detector: its matches are the events that it publishes.

    publishes : the event type of its matches. subscribes : the types in whose events, together in order of time, the
    pattern is searched; conditions may use the column ``type``.
    pattern, define, measures, subsets, within, after : as in `braided.match`. One measure has the name of the time
    column and is a time of the match: ``{"ts": "last(B.ts)"}``.

    Detectors above it see its events after `within`, since until then a match may be open.

    >>> Pattern("retry", subscribes="call", pattern="A B", measures={"ts": "B.ts"}, within="1 minute").publishes
    'retry'
    """

    publishes: str
    _: KW_ONLY
    subscribes: str | Sequence[str]
    pattern: str
    measures: Mapping[str, str]
    define: Mapping[str, str] | None = None
    subsets: Mapping[str, Sequence[str]] | None = None
    within: Duration | None = None
    after: str = "skip past last row"

    def __post_init__(self) -> None:
        # Equal options make equal patterns, also after JSON.
        for name in ("subscribes", "subsets"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def spec(self, time: str, key: Keys) -> MatchSpec:
        """Return the pattern as options of `braided.match`, with the same checks."""
        try:
            return MatchSpec(
                time=time,
                key=key,
                pattern=self.pattern,
                define=self.define,
                measures=self.measures,
                subsets=self.subsets,
                within=self.within,
                after=self.after,
            )
        except OptionError as error:
            raise OptionError(f"Pattern({self.publishes!r}): {error}") from error


@dataclass(frozen=True, kw_only=True)
class DetectSpec(WithIdle):
    """Detectors over named streams, and over each other's events.

    >>> spec = DetectSpec(streams=("call",), time="ts", key="phone", detectors=[
    ...     Pattern("retry", subscribes="call", pattern="A B", measures={"ts": "B.ts"}, within="1 minute")])
    >>> spec.labels
    ("streams['call']",)
    """

    kind: ClassVar[str] = "detect"

    streams: tuple[str, ...]
    detectors: Sequence[AnyDetector] = option(
        "A list of detectors, in any order: instances of classes that derive from `braided.Detector` or "
        "`braided.KeyedDetector`, and patterns, `braided.Pattern`. Each receives the events of the types that it "
        "subscribes to."
    )
    time: str = option("The event-time column, of all streams and of all events that are published.")
    key: Keys = option(
        "The column, or columns, that all streams have: events are detected for each key separately; null is a value "
        "like others. None: in the streams as a whole, on one worker.",
        default=None,
    )
    types: str | Sequence[str] | None = option(
        "Which event types the result has. A list of names gives a column ``type`` and a struct for each type; one "
        "name gives the columns of this type. None: all that are published.",
        default=None,
    )
    lateness: NamedLatenesses = option(
        'How late a row may be: one duration, or a dict with one for each stream. ``"auto"`` or a `braided.Lateness` '
        'learns it. Default: the delay of the stream\'s own `withWatermark`, else ``"auto"``.',
        default=None,
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"streams[{name!r}]" for name in self.streams)

    def time_of(self, stream: int) -> object:
        return self.time

    def check(self) -> None:
        super().check()
        detectors = self.detectors
        if not isinstance(detectors, tuple) or not all(
            isinstance(one, Detector | KeyedDetector | Pattern) for one in detectors
        ):
            raise OptionError("detectors: give a list of detectors, instances of braided.Detector or braided.Pattern")
        if not 1 <= len(detectors) <= MOST_DETECTORS or not 1 <= len(self.streams) <= MOST_STREAMS:
            raise OptionError(
                f"{len(detectors)} detectors over {len(self.streams)} streams given; give 1 to {MOST_DETECTORS} "
                f"detectors over 1 to {MOST_STREAMS} streams"
            )
        if not isinstance(self.time, str):
            raise OptionError(f"time={self.time!r}: write a column name")
        seen: set[str] = set()
        for one in detectors:
            seen |= set(self._check_types(one))
            if isinstance(one, Pattern):
                one.spec(self.time, self.key)
        arrange(self.streams, detectors)
        unused = [name for name in self.streams if name not in seen]
        if unused:
            raise OptionError(f"streams: no detector subscribes to {unused[0]!r}; leave it out")
        each_stream(self.lateness, "lateness", self.streams)
        self.chosen()

    def _check_types(self, one: AnyDetector) -> tuple[str, ...]:
        """Refuse wrong names of event types; return the types that a detector sees."""
        who = type(one).__name__
        if not isinstance(one.publishes, str) or not one.publishes:
            raise OptionError(f"{who}: publishes={one.publishes!r}: write the name of an event type")
        if one.publishes in self.streams:
            raise OptionError(f"{who}: publishes {one.publishes!r}, which is a stream; choose another name")
        types = (one.subscribes,) if isinstance(one.subscribes, str) else one.subscribes
        if not isinstance(types, list | tuple) or not types or not all(isinstance(name, str) for name in types):
            raise OptionError(f"{who}: subscribes={one.subscribes!r}: write one event type or several")
        if len(set(types)) < len(types):
            raise OptionError(f"{who}: subscribes={one.subscribes!r}: names a type twice; name each once")
        return tuple(types)

    def chosen(self) -> tuple[str, ...]:
        """Return the event types of the result, in order."""
        published = tuple(dict.fromkeys(one.publishes for one in self.detectors))
        if self.types is None:
            return published
        types = (self.types,) if isinstance(self.types, str) else self.types
        for name in types if isinstance(types, tuple) else (types,):
            if name not in published:
                raise OptionError(
                    f"types={self.types!r}: no detector publishes {name!r}; write one of {', '.join(published)}"
                )
        if not types or len(set(types)) < len(types):
            raise OptionError(f"types={self.types!r}: write one event type, or a list that names each once")
        return tuple(types)
