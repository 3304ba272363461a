"""Plans as texts: equal up to the order of conjunctions, and no further."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.sqltext.shape import shape

leaves = st.sampled_from(["a#1", "isnotnull(b#22L)", "(c#3 > 4)", "f(a#1, (b#2 + 1))"])
trees = st.recursive(leaves, lambda below: st.tuples(st.sampled_from(["AND", "OR"]), below, below), max_leaves=7)


def _text(tree: Any, *, turned: bool) -> str:
    if isinstance(tree, str):
        return tree
    word, left, right = tree
    if turned and word == "AND":
        left, right = right, left
    return f"({_text(left, turned=turned)} {word} {_text(right, turned=turned)})"


def _meaning(tree: Any) -> Any:
    """Return a tree up to the order and nesting of its conjunctions."""
    if isinstance(tree, str):
        return tree
    word, left, right = tree
    parts = [_meaning(left), _meaning(right)]
    if word == "OR":
        return ("OR", *parts)
    flat = [item for part in parts for item in (part[1] if part[0] == "AND" else [part])]
    return ("AND", sorted(flat, key=repr))


@settings(max_examples=examples(500), deadline=None)
@given(trees, trees)
def test_conditions_are_equal_up_to_the_order_of_conjunctions(one: Any, other: Any) -> None:
    assert shape(f"Filter {_text(one, turned=False)}") == shape(f"~Filter {_text(one, turned=True)}"[1:])
    same = shape(f"Filter {_text(one, turned=False)}") == shape(f"Filter {_text(other, turned=False)}")
    assert same == (_meaning(one) == _meaning(other))


def test_what_each_analysis_gives_anew_is_left_out() -> None:
    assert shape("Join Cross, (k#1 = k#2)") == shape("Join Inner, (k#7L = k#9)")
    assert shape("Project [n#1 AS m#2, x#3]") == shape("Project [n#4 AS other#5L, x#6]")
    assert shape("Filter (a#1 = ) b(") != shape("Filter (a#1 = ) c(")
