"""What a spec is: one logical operator with its options, frozen, comparable and JSON-able, checked where it is made.

Every function of the API, a line of SQL and a job file end in specs; nothing after that knows where they came from. An
option is written once, as a field of its spec: with its type, its words for the reference, and its check.
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
    """Return a field of a spec: its words for the reference and, unless it must be given, its default."""
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
        """Refuse options that no input could make right."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What messages call the inputs, in order."""
        raise NotImplementedError

    def time_of(self, stream: int) -> object:
        """Return what the user called the time column of an input."""
        raise NotImplementedError

    @classmethod
    def words(cls) -> dict[str, str]:
        """Return what the reference says of each option."""
        return {field.name: field.metadata[_DOC] for field in dataclasses.fields(cls) if _DOC in field.metadata}

    def to_json(self) -> Json:
        """Return the spec as plain JSON; options that have their default are left out."""
        given = {
            field.name: _to_plain(getattr(self, field.name), field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        return {"kind": self.kind, **given}


def spec_of(kind: type[S], given: Mapping[str, Any], **more: Any) -> S:
    """Return a spec with its options taken by their names from what a function was given."""
    return kind(**{name: given[name] for name in kind.words()}, **more)


def spec_from_json(content: Json) -> Spec:
    """Return the spec that `Spec.to_json` wrote.

    >>> from braided.operators.order.spec import OrderSpec
    >>> spec_from_json({"kind": "order", "time": "ts", "late": "drop"}) == OrderSpec(time="ts", late="drop")
    True
    """
    kinds = spec_kinds()
    if not isinstance(content, dict) or content.get("kind") not in kinds:
        raise OptionError(f"kind={content.get('kind') if isinstance(content, dict) else content!r}: "
                          f"write one of {', '.join(map(repr, kinds))}")  # fmt: skip
    cls = kinds[content["kind"]]
    names = {field.name for field in dataclasses.fields(cls)}
    options = {name: value for name, value in content.items() if name != "kind"}
    unknown = sorted(set(options) - names)
    if unknown:
        raise OptionError(f"{unknown[0]}: no option of {content['kind']}; there are {', '.join(sorted(names))}")
    return cls(**{name: _from_plain(value) for name, value in options.items()})


def spec_kinds() -> dict[str, type[Spec]]:
    """Return every logical operator that there is, by its kind: whatever is a spec counts."""
    import braided.operators.asof.spec
    import braided.operators.bounded.group_spec
    import braided.operators.detect.spec
    import braided.operators.join.spec
    import braided.operators.match.spec
    import braided.operators.multijoin.spec
    import braided.operators.order.spec
    import braided.operators.row_windows.spec  # noqa: F401

    found: dict[str, type[Spec]] = {}
    pending = list(Spec.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if "kind" in vars(cls):
            found[cls.kind] = cls
    return dict(sorted(found.items()))


def frozen(value: Any) -> Any:
    """Return a value with tuples for lists."""
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    return {key: frozen(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def _objects() -> dict[str, type]:
    """Return what options may hold beside plain values, by name. Nothing else is ever made from JSON."""
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
        given = {
            field.name: _to_plain(getattr(value, field.name), field.name)
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
        return {"is": type(value).__name__, **given}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise OptionError(f"{name}={value!r}: cannot be written as JSON")


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_plain(part) for part in value)
    if isinstance(value, dict) and "is" in value:
        objects = _objects()
        if value["is"] not in objects:
            raise OptionError(f"is={value['is']!r}: write one of {', '.join(sorted(objects))}")
        cls = objects[value["is"]]
        parts = {name: _from_plain(part) for name, part in value.items() if name != "is"}
        known = {field.name for field in dataclasses.fields(cls)}
        if set(parts) - known:
            raise OptionError(
                f"{min(set(parts) - known)}: no option of {value['is']}; there are {', '.join(sorted(known))}"
            )
        return cls(**parts)
    return {key: _from_plain(part) for key, part in value.items()} if isinstance(value, dict) else value
