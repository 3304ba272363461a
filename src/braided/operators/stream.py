"""A stream as the planner sees it: its columns, and how late its times may be, whatever its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from braided.durations import format_duration
from braided.errors import OptionError
from braided.routing.key_hashes import KeyHasher, common_key_type
from braided.time.lateness import Lateness
from braided.time.resolve import learned_above, resolve_rule


@dataclass(frozen=True)
class TimeMarks:
    """What is known about a time column before rows arrive, in microseconds.

    delay : of the result of an operator, how far its times may be behind the largest one so far; None for a source.
    watermark_delay : how far they may be behind the clocks of its sources.
    watermark : the delay of a watermark that was given to it, or of its sources; None where there is none.
    exact : whether no stream before has a learned lateness, so that the delay does not grow while a query runs.
    offsets : how far it is, at least and at most, from an origin that the marked times of a row share; None if unknown.
    optional : whether rows without it, from an outer join, are among the rows.
    mixed : whether rows that waited by another time are among rows that lack that time and so did not wait.
    """

    delay: int | None = None
    watermark_delay: int = 0
    watermark: int | None = None
    exact: bool = False
    offsets: tuple[int, int] | None = None
    optional: bool = False
    mixed: bool = False

    def smaller_with(self, other: TimeMarks, further: int) -> TimeMarks:
        """Return the marks of the smaller of this time and another one; its delay is longer by `further`.

        If each time is at most its delay behind the largest of its column, or behind a watermark, so is the smaller:
        the largest smaller time seen is behind both.

        >>> TimeMarks(5, 3, 4).smaller_with(TimeMarks(2, 7, None), 10)
        TimeMarks(delay=15, watermark_delay=7, watermark=None, exact=False, offsets=None, optional=False, mixed=False)
        """
        return TimeMarks(
            None if self.delay is None or other.delay is None else max(self.delay, other.delay) + further,
            max(self.watermark_delay, other.watermark_delay),
            None if self.watermark is None or other.watermark is None else max(self.watermark, other.watermark),
            self.exact and other.exact,
            None
            if self.offsets is None or other.offsets is None
            else (min(self.offsets[0], other.offsets[0]), min(self.offsets[1], other.offsets[1])),
            self.optional and other.optional,
            self.mixed or other.mixed,
        )

    def shifted(self, shift: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return its offsets from another origin, from which its own origin is `shift`."""
        low, high = self.offsets or (0, 0)
        return None if shift is None else (low + shift[0], high + shift[1])

    @property
    def known(self) -> int | None:
        """The lateness that a stream has if none is given: that of its watermark or operator; None if it is learned."""
        return self.watermark if self.delay is None else self.delay if self.exact else None

    def lateness(self, rule: int | Lateness | None) -> int | Lateness:
        """Return a stream's lateness: as given, else as known, else learned; never less than its own delay.

        >>> TimeMarks(watermark=5).lateness(None), TimeMarks(7).lateness(3), TimeMarks(7, exact=True).lateness(None)
        (5, 10, 7)
        """
        own = self.delay or 0
        if self.mixed and isinstance(rule, int):
            raise OptionError(
                f"lateness={format_duration(rule)!r}: no fixed lateness holds for this time: an outer or anti join "
                "before compares another time, which some rows lack; these came out at once, and others waited. Join "
                "by this time first, or leave lateness= out for this stream, so that it is learned"
            )
        if isinstance(rule, int):
            return own + rule
        if rule is None and self.known is not None:
            return self.known
        return learned_above(Lateness() if rule is None else rule, own)

    def waiting_lateness(self, rule: int | Lateness | None) -> int | Lateness:
        """Return the lateness of a stream whose rows wait for it: a learned one has no floor."""
        if rule is None and self.known is None:
            rule = resolve_rule("auto", 0)
        return self.lateness(rule)


@dataclass(frozen=True)
class Stream:
    """One input: its name in messages, its Arrow schema, and the marks of its time columns.

    `collated` columns compare in other ways than by their bytes. With `case_sensitive`, names must match exactly.
    """

    label: str
    schema: pa.Schema
    marks: Mapping[str, TimeMarks] = field(default_factory=dict)
    collated: frozenset[str] = frozenset()
    case_sensitive: bool = False

    @property
    def called(self) -> str:
        """Return its name within a sentence."""
        return f"the {self.label} input" if self.label in ("left", "right") else f"the {self.label}".replace(
            "the streams", "streams"
        )  # fmt: skip

    def marks_of(self, column: str) -> TimeMarks:
        return self.marks.get(column, TimeMarks())

    def apart(self, column: str, time: str) -> tuple[int, int] | None:
        """Return how far a column is from a time of the same row, at least and at most; None if that is unknown.

        >>> times = {"a": TimeMarks(offsets=(0, 0)), "b": TimeMarks(offsets=(-5, 60))}
        >>> Stream("left", pa.schema([]), times).apart("a", "b")
        (-60, 5)
        """
        if column == time:
            return 0, 0
        one, other = self.marks_of(column).offsets, self.marks_of(time).offsets
        return None if one is None or other is None else (one[0] - other[1], one[1] - other[0])

    def marks_after(self, column: str, time: str, after: TimeMarks, *, waits: bool = False) -> TimeMarks | None:
        """Return the marks of a column in the results of an operator by a time; None if it is no time of known delay.

        after : the marks of `time` in the results, with how far the stream's origin is from that of the results as
            offsets.
        waits : whether rows with that time wait in the operator, and rows without it do not.
        """
        apart, known = self.apart(column, time), self.marks_of(column)
        if apart is None:
            return None
        offsets = known.shifted(after.offsets)
        if column == time:
            return replace(after, offsets=offsets, optional=known.optional)
        # It is so far from the time, but rows without that time may come out as late as they came.
        low, high = apart
        mixed = known.mixed or (waits and self.marks_of(time).optional)
        return TimeMarks(
            max(known.delay or 0, (after.delay or 0) + high - low),
            max(known.watermark_delay, after.watermark_delay - low),
            exact=after.exact and not mixed,
            offsets=offsets,
            optional=known.optional,
            mixed=mixed,
        )

    def find(self, name: object, option: str) -> str:
        """Find a column as Spark does: exactly, else case-insensitively unless `case_sensitive`."""
        names: list[str] = self.schema.names
        if name in names:
            return str(name)
        folded = [] if self.case_sensitive else [column for column in names if column.lower() == str(name).lower()]
        if len(folded) == 1:
            return folded[0]
        raise OptionError(f"{option}={name!r}: {self.called} has no such column; it has {', '.join(names)}")

    def time_column(self, name: object) -> str:
        """Find a column of timestamps in microseconds."""
        column = self.find(name, "time")
        kind = self.schema.field(column).type
        if not pa.types.is_timestamp(kind) or kind.unit != "us":
            raise OptionError(f"time={column!r}: has type {kind}, not a timestamp in microseconds; cast it")
        return column

    def key_column(self, name: object, option: str) -> str:
        """Find a column whose values can be compared by their bytes."""
        column = self.find(name, option)
        if column in self.collated:
            raise OptionError(
                f"{option}={column!r}: {self.called} has it with a collation; collated keys are not supported, cast it "
                "to string"
            )
        return column

    def key_columns(self, names: str | Sequence[str] | None) -> tuple[str, ...]:
        """Find the columns that ``key=`` names: none, one or several."""
        wanted = () if names is None else (names,) if isinstance(names, str) else names
        return tuple(self.key_column(name, "key") for name in wanted)

    def hasher(self, keys: Sequence[str]) -> KeyHasher:
        kinds = [self.schema.field(name).type for name in keys]
        for name, kind in zip(keys, kinds, strict=True):
            if pa.types.is_nested(kind):
                raise OptionError(f"key={name!r}: a column of type {kind} cannot be a key; take its fields, or cast it")
        return KeyHasher(
            tuple(common_key_type(kind, kind, (name, name)) for name, kind in zip(keys, kinds, strict=True))
        )
