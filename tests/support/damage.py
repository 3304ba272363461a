"""Damage: what may have become of a text, of JSON or of bytes on the way here, for tests of whatever reads them."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in inner for place in _places(item, (*at, key)))]


@st.composite
def damaged_json(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value of which some parts are replaced, missing, or there under another name."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(value)))
        if not place:
            if draw(st.integers(0, 9)) == 0:
                return draw(JSON)
            continue
        owner = value
        for key in place[:-1]:
            owner = owner[key]
        how = draw(st.sampled_from(("replace", "like", "delete", "rename")))
        before = owner[place[-1]]
        if how == "delete":
            del owner[place[-1]]
        elif how == "rename" and isinstance(owner, dict):
            owner[draw(st.text(max_size=8))] = owner.pop(place[-1])
        elif how == "like":  # of the same type, and yet out of bounds
            same = {
                str: st.text(max_size=300),
                int: st.integers(-(2**65), 2**65),
                float: st.floats(),
                bool: st.integers(),
            }
            owner[place[-1]] = draw(same.get(type(before), JSON))
        else:
            owner[place[-1]] = draw(JSON)
    return value


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some are changed, missing, or there twice."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = draw(st.integers(start, min(len(content), start + 40)))
        middle = draw(st.sampled_from((b"", content[start:stop] * 2)) | st.binary(max_size=10))
        content = content[:start] + middle + content[stop:]
    return content


@st.composite
def damaged_file(draw: st.DrawFn, content: bytes) -> bytes:
    """A file of JSON, damaged in its bytes or in what it says."""
    if draw(st.booleans()):
        return draw(damaged_bytes(content))
    return json.dumps(draw(damaged_json(json.loads(content)))).encode()
