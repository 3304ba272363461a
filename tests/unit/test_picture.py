"""Pictures of queries: well-formed, nothing left out, and no box over another."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.picture import Box, draw

SVG = "{http://www.w3.org/2000/svg}"
words = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp", "Cn", "Co")), min_size=1, max_size=12)
boxes = st.recursive(
    st.builds(Box, words, st.just("source"), st.lists(words, max_size=2)),
    lambda below: st.builds(
        Box, words, st.sampled_from(["braided", "spark"]), st.lists(words, max_size=6), st.lists(below, max_size=3)
    ),
    max_leaves=8,
)


def _count(box: Box) -> int:
    return 1 + sum(_count(each) for each in box.inputs)


def _said(box: Box) -> list[str]:
    return [box.title, *box.lines, *(text for each in box.inputs for text in _said(each))]


@settings(max_examples=examples(200), deadline=None)
@given(boxes)
def test_every_box_is_drawn_once_and_none_over_another(box: Box) -> None:
    root = ElementTree.fromstring(draw(box))
    rects = [{name: float(r.get(name, 0)) for name in ("x", "y", "width", "height")} for r in root.iter(f"{SVG}rect")]
    assert len(rects) == _count(box)
    assert len(list(root.iter(f"{SVG}path"))) == 2 * (_count(box) - 1)
    for a, b in combinations(rects, 2):
        beside = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
        assert beside or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]
    assert all(r["x"] + r["width"] <= float(root.get("width", 0)) for r in rects)
    assert all(r["y"] + r["height"] <= float(root.get("height", 0)) for r in rects)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert sorted(texts, key=str) == sorted(_said(box))


def test_long_lines_are_wrapped_and_signs_escaped() -> None:
    root = ElementTree.fromstring(draw(Box("a < b", "spark", ["word & " * 30])))
    first, *lines = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert first == "a < b"
    assert "".join(lines).count("&") == 30
    assert max(map(len, lines)) <= 50
