"""A spec: one logical operator with its options, frozen, comparable, and checked when it is made.

Functions of the API, SQL texts and job files all become specs; later code does not know where a spec came from. An
option is written once, as a field of its spec: with its type, its description for the reference, and its check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from braided.durations import format_duration
from braided.errors import OptionError
from braided.time.lateness import Lateness
from braided.typing import Json

_DOC = "doc"
S = TypeVar("S", bound="Spec")


def option(doc: str, **default: Any) -> Any:
    """Return a field of a spec: its description for the reference and, unless it is required, its default."""
    return dataclasses.field(metadata={_DOC: doc}, kw_only=True, **default)


@dataclasses.dataclass(frozen=True)
class Spec:
    """One logical operator. Lists become tuples, so that equal options make equal specs."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, frozen(getattr(self, field.name)))
        self.check()

    def check(self) -> None:
        """Refuse options that are wrong for every input."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the inputs in messages, in order."""
        raise NotImplementedError

    def time_of(self, stream: int) -> object:
        raise NotImplementedError

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Return the description of each option for the reference."""
        return {field.name: field.metadata[_DOC] for field in dataclasses.fields(cls) if _DOC in field.metadata}

    def to_json(self) -> Json:
        """Return the spec as plain JSON; options that have their default are left out."""
        options = {
            field.name: _to_plain(getattr(self, field.name), field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        return {"kind": self.kind, **options}


def spec_of(kind: type[S], arguments: Mapping[str, Any], **more: Any) -> S:
    """Return a spec whose options are taken, by their names, from the arguments of a function."""
    return kind(**{name: arguments[name] for name in kind.descriptions()}, **more)


def spec_kinds() -> dict[str, type[Spec]]:
    """Return all logical operators by their kind: every subclass of `Spec` that has a kind."""
    import braided.operators.asof.spec
    import braided.operators.bounded.group_spec
    import braided.operators.detect.spec
    import braided.operators.join.spec
    import braided.operators.match.spec
    import braided.operators.multijoin.spec
    import braided.operators.order.spec
    import braided.operators.row_windows.spec  # noqa: F401

    kinds: dict[str, type[Spec]] = {}
    pending = list(Spec.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if "kind" in vars(cls):
            kinds[cls.kind] = cls
    return dict(sorted(kinds.items()))


def frozen(value: Any) -> Any:
    """Return a value with its lists replaced by tuples."""
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    return {key: frozen(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def _objects() -> dict[str, type]:
    """Return the classes of objects that options may hold beside plain values, by name."""
    from braided.eviction.policies.registry import POLICIES
    from braided.operators.bounded.group_spec import Join
    from braided.operators.detect.spec import Pattern

    return {cls.__name__: cls for cls in (Lateness, Join, Pattern, *POLICIES.values())}


def _to_plain(value: Any, name: str) -> Any:
    if isinstance(value, timedelta):
        return format_duration(round(value.total_seconds() * 1_000_000))
    if isinstance(value, tuple):
        return [_to_plain(part, name) for part in value]
    if isinstance(value, dict):
        return {key: _to_plain(part, name) for key, part in value.items()}
    if dataclasses.is_dataclass(value) and _objects().get(type(value).__name__) is type(value):
        options = {
            field.name: _to_plain(getattr(value, field.name), field.name)
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
        return {"is": type(value).__name__, **options}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise OptionError(f"{name}={value!r}: cannot be written as JSON")
