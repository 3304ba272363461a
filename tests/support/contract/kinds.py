"""What the contract suite must know of a kind of spec: what it gives, its variants, what may change on a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pyarrow.compute as pc
from hypothesis import strategies as st

import braided
from braided.operators.spec import Spec
from braided.time.lateness import Lateness
from braided.typing import PolicyName
from support.contract.histories import SCHEMA, History, Row

Streams = Sequence[Sequence[Row]]
Bag = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """One variant of a kind: the specs of it that Hypothesis tries, and one of them for tests that need no variety.

    twins : whether rows may come twice with equal content and the result be the same for all cuts all the same.
    """

    name: str
    example: Spec
    specs: st.SearchStrategy[Any]
    twins: bool = True


@dataclass(frozen=True)
class Change:
    """A change of one option on a checkpoint.

    given : the options that change, or how they follow from the spec. refused : as what, for it gives state its meaning;
        None: it is accepted. when : the specs for which it is a change.
    """

    option: str
    refused: str | None
    given: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]
    when: Callable[[Any], bool] = lambda spec: True

    def apply(self, spec: Any) -> Any:
        """Return the spec with other options."""
        return replace(spec, **(self.given(spec) if callable(self.given) else self.given))


@dataclass(frozen=True)
class Kind:
    """What the contract suite knows of a kind of spec.

    wanted : the bag of results that a naive reading of a spec gives for whole streams.
    content : a result as it is in that bag; default: all of its columns.
    whole : whether a spec must give all of it for a history, and not a part, as with a budget.
    line : the group of a result within which results come in an order that counts; None: no order counts.
    null_key : whether a row of a stream is left out for a null in its key.
    of_parts : whether what some rows of a stream give is a part of what all give, for a spec.
    keeps_late : whether late rows come out as well.
    no_case : options that other tests try, and which.
    crowded : a variant, and how many rows of one key and time in each stream make far more results than fit in a piece:
        so many small ones, or so many of 20,000 bytes.
    """

    wanted: Callable[[Any, Streams], Bag]
    cases: tuple[Case, ...]
    changes: tuple[Change, ...]
    crowded: Callable[[Any], tuple[Spec, int, int]]
    content: Callable[[Any, Row], tuple[Any, ...]] = lambda _, row: tuple(row.values())
    whole: Callable[[Any, History], bool] = lambda spec, history: True
    line: Callable[[Any, Row], Any] | None = None
    null_key: Callable[[Any, int, Row], bool] = lambda spec, side, row: False
    of_parts: Callable[[Any], bool] = lambda spec: True
    keeps_late: Callable[[Any], bool] = lambda spec: False
    no_case: Mapping[str, str] = field(default_factory=dict)


def names_of(on: Any, streams: int) -> list[list[str]]:
    """Return the key columns of each stream."""
    parts = [] if on is None else [on] if isinstance(on, str) else on
    each = [(part,) * streams if isinstance(part, str) else part for part in parts]
    return [[names[stream] for names in each] for stream in range(streams)]


def key_of(row: Row, names: Sequence[str]) -> tuple[Any, ...] | None:
    """Return a row's key; None where part of it is null."""
    key = tuple(row[name] for name in names)
    return None if None in key else key


def beside(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """Return a row without its key."""
    return tuple(row[name] for name in SCHEMA.names if name not in names)


def us(count: int) -> str:
    return f"{count} us"


micros = st.integers(0, 6).map(us)
windows = st.tuples(st.integers(-8, 6), st.integers(0, 9)).map(lambda w: (us(w[0]), us(w[0] + w[1])))
policies = st.sampled_from((*get_args(PolicyName), braided.GDJ(initial=0.3)))
budgets = st.integers(3, 8) | st.just(1000)
learned = st.builds(
    Lateness,
    margin=st.sampled_from((0, 0.5)),
    floor=micros,
    recall=st.sampled_from((None, 0.5)),
    memory=st.just(us(50)),
) | st.builds(
    Lateness,
    floor=micros,
    measure=st.just("next"),
    clock_rows=st.sampled_from((None, lambda rows: pc.equal(rows.column("k"), 0))),
)
keys = st.sampled_from(("k", "s", ("k", "s"), (("k", "k"), "s")))
shares = st.sampled_from(("unified", "proportional"))


def fits(spec: Any, history: History) -> bool:
    """Whether a budget has room for all there is."""
    room = spec.memory is None or (isinstance(spec.memory, int) and spec.memory > 2 * len(history.rows))
    return room and spec.shed is None


def fixed(spec: Any) -> bool:
    """Whether the lateness is not learned."""
    given = spec.lateness.values() if isinstance(spec.lateness, dict) else spec.lateness
    parts = (given,) if isinstance(given, str | Lateness) else given
    return not any(isinstance(part, Lateness) for part in parts)


budget_changes = (
    Change("evict", "evict", {"evict": "random"}, lambda spec: spec.memory is not None),
    Change("share", "share", {"share": "proportional"}, lambda spec: spec.memory is not None),
)
