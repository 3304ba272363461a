"""Convert Spark's plans to texts that can be compared: without ids and orders that differ in every analysis."""

from __future__ import annotations

import re

from sqlglot.tokens import TokenType

from braided.expressions.dialect import Braided


def without_distinct(text: str) -> tuple[str, int]:
    """Return a query without the DISTINCT of its aggregates, and their number.

    Spark rewrites several of them into one operator with a branch for each, whose order differs in every analysis.

    >>> without_distinct("SELECT DISTINCT count(DISTINCT a), sum( distinct b) FROM t WHERE f(distinct) > 1")
    ('SELECT DISTINCT count( a), sum(  b) FROM t WHERE f(distinct) > 1', 2)
    """
    tokens = Braided().tokenize(text)
    aggregates = [
        token
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.token_type == TokenType.DISTINCT and before.text == "(" and after.text not in (")", ",")
    ]
    for token in reversed(aggregates):
        text = text[: token.start] + text[token.end + 1 :]
    return text, len(aggregates)


def shape(plan: str) -> str:
    """Return a plan's text without the ids and aliases of columns, and with its conjunctions in a fixed order.

    Spark infers conditions such as ``isnotnull(k)`` and keeps them in sets, whose order depends on the ids.

    >>> shape("Filter (a#1 AND (isnotnull(b#7L) AND c#3))") == shape("Filter ((c#4 AND isnotnull(b#2L)) AND a#9)")
    True
    >>> shape("Project [ts#8-T3000ms AS ts#9-T3000ms]") == shape("Project [ts#8-T3000ms]")
    True
    >>> shape("Filter ((a#1 AND b#2) OR c#3)") == shape("Filter (a#1 AND (b#2 OR c#3))")
    False
    """
    unnamed = re.sub(r"#\d+L?", "", re.sub(r" AS .*?#\d+L?(-T\d+ms)?", "", plan))
    return "\n".join(map(_ordered, unnamed.replace("Join Cross", "Join Inner").lower().splitlines()))


def _ordered(line: str) -> str:
    """Return a line in which the parts of every AND in parentheses are sorted, also in nested parentheses."""
    conjunctions: dict[str, list[str]] = {}
    levels: list[list[str]] = [[""]]
    for token in re.findall(r"\(|\)| and |[^() ]+|[ ]", line):
        if token == "(":
            levels.append([""])
        elif token == ")" and len(levels) > 1:
            parts = levels.pop()
            if len(parts) > 1:
                parts = sorted(item for part in parts for item in conjunctions.get(part, [part]))
            group = f"({' and '.join(parts)})"
            if len(parts) > 1:
                conjunctions[group] = parts
            levels[-1][-1] += group
        elif token == " and " and len(levels) > 1:
            levels[-1].append("")
        else:
            levels[-1][-1] += token
    while len(levels) > 1:  # an unbalanced parenthesis, which is in a string
        parts = levels.pop()
        levels[-1][-1] += "(" + " and ".join(parts)
    return levels[0][0]
