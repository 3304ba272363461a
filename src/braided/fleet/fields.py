"""Checked dataclasses: what comes from the network becomes one if every field has its type and is within limits."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from braided.errors import PeerError

MAX_TEXT = 32 << 10  # a job file; a whole message has 64 KB
MAX_ITEMS = 1024
MAX_INTEGER = 2**53  # exact in every reader of JSON

_REMEMBERED = 10_000

T = TypeVar("T")
Reader = Callable[[Any], Any]


def plain(value: Any) -> Any:
    """Return a checked dataclass as JSON's own types."""
    if type(value) in _PLAIN or value is None:
        return value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return {name: plain(getattr(value, name)) for name in _readers(type(value))}


def read(kind: type[T], value: Any) -> T:
    """Return the dataclass that a JSON value describes; `PeerError` if it is anything else.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     tags: tuple[str, ...] = ()
    >>> read(Point, {"x": 1, "tags": ["a"]})
    Point(x=1, tags=('a',))
    >>> read(Point, {"x": "1"})
    Traceback (most recent call last):
    braided.errors.PeerError: x: '1' is no whole number
    """
    if not isinstance(value, dict):
        raise PeerError(f"{kind.__name__}: {_short(value)} is no object")
    readers = _readers(kind)
    found = {}
    name = ""
    try:
        for name, item in value.items():
            found[name] = readers[name](item)
    except PeerError as error:
        raise PeerError(f"{name}: {error}") from None
    except KeyError:
        raise PeerError(f"{kind.__name__}: {_short(name)} is no field of it") from None
    try:
        return kind(**found)
    except TypeError:
        raise PeerError(f"{kind.__name__}: has only the fields {sorted(found)}") from None


_FIELDS: dict[Any, dict[str, Reader]] = {}


def _readers(kind: Any) -> dict[str, Reader]:
    if kind not in _FIELDS:
        hints = typing.get_type_hints(kind)
        _FIELDS[kind] = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    return _FIELDS[kind]


def _reader(hint: Any) -> Reader:
    if dataclasses.is_dataclass(hint):
        return _one_of(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return _tuple_of(_reader(arguments[0]))
    if origin is dict and arguments[0] is str:
        return _dict_of(_reader(arguments[1]))
    if origin in (types.UnionType, typing.Union) and len(arguments) == 2 and arguments[1] is type(None):
        inner = _reader(arguments[0])
        return lambda value: None if value is None else inner(value)
    raise TypeError(f"{hint}: no reader for such a field")


def _one_of(kind: Any) -> Reader:
    """Return a reader of a dataclass of texts that remembers what it has read: the same contacts come all the time."""
    hints = typing.get_type_hints(kind)
    if set(hints.values()) != {str}:
        return lambda value: read(kind, value)
    names = tuple(hints)
    known: dict[tuple[Any, ...], Any] = {}

    def reader(value: Any) -> Any:
        key = tuple(map(value.get, names)) if isinstance(value, dict) and len(value) == len(names) else ()
        try:
            found = known.get(key)
        except TypeError:  # something in it is no text
            found = None
        if found is None:
            found = read(kind, value)
            if len(known) >= _REMEMBERED:
                known.clear()
            known[key] = found
        return found

    return reader


def _tuple_of(inner: Reader) -> Reader:
    def reader(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            raise PeerError(f"{_short(value)} is no list of at most {MAX_ITEMS}")
        return tuple(inner(item) for item in value)

    return reader


def _dict_of(inner: Reader) -> Reader:
    def reader(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > MAX_ITEMS:
            raise PeerError(f"{_short(value)} is no object of at most {MAX_ITEMS}")
        return {_text(key): inner(item) for key, item in value.items()}

    return reader


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise PeerError(f"{_short(value)} is no text of at most {MAX_TEXT} characters")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not -MAX_INTEGER < value < MAX_INTEGER:
        raise PeerError(f"{_short(value)} is no whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -MAX_INTEGER < value < MAX_INTEGER or not math.isfinite(value):
        raise PeerError(f"{_short(value)} is no finite number")
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise PeerError(f"{_short(value)} is not true or false")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_PLAIN: dict[Any, Reader] = {str: _text, int: _whole, float: _number, bool: _truth}
