"""The options of several joins of the same streams under one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, TypeVar

from braided.errors import OptionError
from braided.operators.shared_options import WithIdle, resolve_bounds
from braided.operators.spec import option
from braided.typing import JOIN, Duration, Evict, GroupShare, Memory, NamedLatenesses, On, Shed, Within

MOST_STREAMS = 8
MOST_JOINS = 16
T = TypeVar("T")


@dataclass(frozen=True)
class Join:
    """One join of a `braided.join_group`: its name, two streams by name, and what they are joined on.

    on, within, between, suffixes : as in `braided.join`; a key is needed.

    >>> Join("by_phone", left="calls", right="cells", on="phone", within="10 seconds").between is None
    True
    """

    name: str
    _: KW_ONLY
    left: str
    right: str
    on: On
    within: Within | None = None
    between: tuple[Duration, Duration] | None = None
    suffixes: tuple[str, str] = ("", "_right")

    @property
    def bounds(self) -> tuple[int, int]:
        """The window, lo <= r.t - l.t <= hi, in microseconds."""
        return resolve_bounds(self.within, self.between)


@dataclass(frozen=True, kw_only=True)
class GroupSpec(WithIdle):
    """Inner joins of the same streams that together store no more than one budget allows."""

    kind: ClassVar[str] = "join_group"

    streams: tuple[str, ...]
    joins: Sequence[Join] = option(
        'A list of ``braided.Join("by_phone", left="calls", right="cells", on="phone", within="10 seconds")``.'
    )
    time: str | Mapping[str, str] = option("The event-time column, or a dict with one for each stream.")
    memory: Memory = option(
        'What a worker stores at most, of all streams for all joins: a number of rows, or a size such as ``"256 MB"``.'
    )
    evict: Evict = option(
        '``"gdj"``, ``"prob"``, ``"fifo"``, ``"random"``, ``"tail"``, or a policy such as '
        "``braided.GDJ(initial=0.3)``.",
        default="gdj",
    )
    share: GroupShare = option(
        'How the joins share the budget: ``"unified"`` lets all rows compete for it, by credits that sum over the '
        'joins; ``"credits"`` gives each join a part by the average credit of its rows, for GDJ alone.',
        default="unified",
    )
    shed: Shed | None = option(
        'A share of each stream to drop at random, or ``"unbiased"``, as in `braided.join`.', default=None
    )
    lateness: NamedLatenesses = option(
        "As in `braided.join`: one for all streams, or a dict with one for each.", default=None
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"streams[{name!r}]" for name in self.streams)

    def time_of(self, stream: int) -> object:
        return each_stream(self.time, "time", self.streams)[self.streams[stream]]

    def check(self) -> None:
        """Refuse what is not a group of joins over named streams, all of which are used."""
        joins, streams = self.joins, self.streams
        if not isinstance(joins, tuple) or not all(isinstance(join, Join) for join in joins):
            raise OptionError("joins: give a list of braided.Join, [braided.Join('by_phone', left='calls', ...)]")
        for join in joins:
            self._check_join(join)
        if not 1 <= len(joins) <= MOST_JOINS or not 2 <= len(streams) <= MOST_STREAMS:
            raise OptionError(
                f"{len(joins)} joins over {len(streams)} streams given; give 1 to {MOST_JOINS} joins over 2 to "
                f"{MOST_STREAMS} streams"
            )
        folded = [str(join.name).lower() for join in joins]
        if JOIN in folded or "" in folded or len(set(folded)) < len(folded):
            raise OptionError(f"joins: the names {', '.join(folded)} must differ, and none may be empty or {JOIN!r}")
        unused = set(streams) - {stream for join in joins for stream in (join.left, join.right)}
        if unused:
            raise OptionError(f"streams: no join uses {min(unused)!r}; leave it out")
        if self.memory is None:
            raise OptionError(
                "memory=None: write a number of rows, or '256 MB'; to join without a budget, write single joins"
            )
        if self.evict == "auto":
            from braided.eviction.policies.registry import POLICIES

            *others, last = (repr(name) for name, kind in POLICIES.items() if kind.in_groups)
            raise OptionError(f"evict='auto': tunes single joins; write {', '.join(others)} or {last}")
        if self.share not in ("unified", "credits"):
            raise OptionError(f"share={self.share!r}: write 'unified' or 'credits'")
        super().check()

    def _check_join(self, join: Join) -> None:
        for side, stream in (("left", join.left), ("right", join.right)):
            if stream not in self.streams:
                raise OptionError(
                    f"Join({join.name!r}): {side}={stream!r}: unknown stream; write one of {', '.join(self.streams)}"
                )
        if join.left == join.right:
            raise OptionError(f"Join({join.name!r}): joins a stream with itself; give the stream under two names")
        if join.on is None:
            raise OptionError(f"Join({join.name!r}): on=None: a join without keys cannot have a budget")
        _ = join.bounds


def check_named(streams: object) -> None:
    """Refuse what is not a dict of streams by name."""
    if not isinstance(streams, Mapping) or not all(isinstance(name, str) for name in streams):
        raise OptionError("streams: give a dict from a name to its stream, {'calls': ..., 'cells': ...}")


def common_stream_first(joins: Sequence[Join], streams: Mapping[str, T]) -> dict[str, T]:
    """Return the streams; if one of them is in every join, it comes first."""
    known = [join for join in joins if isinstance(join, Join)] if isinstance(joins, list | tuple) else []
    centres = [name for name in streams if all(name in (join.left, join.right) for join in known)][:1]
    return {name: streams[name] for name in (*centres, *(name for name in streams if name not in centres))}


def each_stream(value: object, name: str, streams: Sequence[str]) -> Mapping[str, object]:
    """Return a value for each stream: one for all, or those of a dict."""
    if isinstance(value, Mapping):
        if set(value) == set(streams):
            return value
        raise OptionError(f"{name}={value!r}: write one, or a dict with one for each of {', '.join(streams)}")
    if isinstance(value, list | tuple):
        raise OptionError(f"{name}={value!r}: write one, or a dict with one for each of {', '.join(streams)}")
    return dict.fromkeys(streams, value)
