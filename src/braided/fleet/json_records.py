"""Records: frozen dataclasses that are read from JSON of other peers, with a type and a limit for every field."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self, dataclass_transform

from braided.errors import PeerError

MAX_TEXT = 32 << 10  # a job file; a whole message has 64 KB
MAX_ITEMS = 1024
MAX_INTEGER = 2**53  # exact in every reader of JSON

Reader = Callable[[Any], Any]


@dataclass_transform(frozen_default=True)
class Record:
    """A base class: subclasses become frozen dataclasses. Fields have JSON's types, or are tuples, dicts and records.

    >>> class Point(Record):
    ...     x: int
    ...     tags: tuple[str, ...] = ()
    >>> Point.read({"x": 1, "tags": ["a"]})
    Point(x=1, tags=('a',))
    >>> Point.read({"x": "1"})
    Traceback (most recent call last):
    braided.errors.PeerError: x: '1': expected a whole number
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)

    @classmethod
    def read(cls, value: Any) -> Self:
        """Return the record that a JSON value describes; `PeerError` if it is anything else."""
        if not isinstance(value, dict):
            raise PeerError(f"{cls.__name__}: {_short(value)}: expected an object")
        readers, fields, name = cls._readers(), {}, ""
        try:
            for name, item in value.items():
                fields[name] = readers[name](item)
        except PeerError as error:
            raise PeerError(f"{name}: {error}") from None
        except KeyError:
            raise PeerError(f"{cls.__name__}: unknown field {_short(name)}") from None
        try:
            return cls(**fields)
        except TypeError:
            raise PeerError(f"{cls.__name__}: required fields are missing; it has only {sorted(fields)}") from None

    @classmethod
    def from_bytes(cls, content: bytes, where: str, advice: str = "restore it from a copy") -> Self:
        """Return a stored record; `PeerError` with the name of the file and advice if it is damaged."""
        try:
            return cls.read(json.loads(content))
        except (ValueError, PeerError) as error:
            raise PeerError(f"{where}: is damaged ({error}); {advice}") from error

    @classmethod
    @cache
    def _readers(cls) -> dict[str, Reader]:
        hints = typing.get_type_hints(cls)
        return {name: _reader(hints[name]) for name in cls.__dataclass_fields__}

    def to_bytes(self) -> bytes:
        """Return the record in its stored form."""
        return json.dumps(self, default=fields_of).encode()


def fields_of(record: Record) -> dict[str, Any]:
    """Return the fields of a record by name, for `json.dumps`."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _reader(hint: Any) -> Reader:
    if hint in _READERS:
        return _READERS[hint]
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.read
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict:
        read_key, read_value = map(_reader, arguments)
        return lambda value: {read_key(key): read_value(item) for key, item in _object(value).items()}
    inner = _reader(arguments[0])
    if origin is tuple:
        return lambda value: tuple(map(inner, _list(value)))
    return lambda value: None if value is None else inner(value)  # X | None


def _limited(is_valid: Callable[[Any], bool], expected: str) -> Reader:
    def read(value: Any) -> Any:
        if not is_valid(value):
            raise PeerError(f"{_short(value)}: expected {expected}")
        return value

    return read


def _is_number(value: Any, *kinds: type) -> bool:
    return type(value) in kinds and -MAX_INTEGER < value < MAX_INTEGER  # false for NaN


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_list = _limited(lambda value: isinstance(value, list) and len(value) <= MAX_ITEMS, f"a list of at most {MAX_ITEMS}")
_object = _limited(
    lambda value: isinstance(value, dict) and len(value) <= MAX_ITEMS, f"an object of at most {MAX_ITEMS} fields"
)
_number = _limited(lambda value: _is_number(value, int, float), "a finite number")
_READERS: dict[Any, Reader] = {
    str: _limited(
        lambda value: isinstance(value, str) and len(value) <= MAX_TEXT, f"a string of at most {MAX_TEXT} characters"
    ),
    int: _limited(lambda value: _is_number(value, int), "a whole number"),
    float: lambda value: float(_number(value)),
    bool: _limited(lambda value: isinstance(value, bool), "true or false"),
}
