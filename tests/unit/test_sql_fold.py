"""Which joins with an aggregate of the same rows are folded, and what they become."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot.optimizer.qualify import qualify

from braided.expressions.dialect import Braided
from braided.sqltext.fold import fold

X = "SELECT window(ts, '10 seconds') AS w, cell, phone, count(*) AS n FROM calls GROUP BY window(ts, '10 seconds'), cell, phone"
MOST = f"(SELECT w, phone, max(n) AS most FROM ({X}) x GROUP BY w, phone) m"
ON = "b.w = m.w AND m.phone = b.phone AND b.n >= m.most"


def folded(text: str, stream: str = "calls") -> tuple[list[str], str]:
    columns = dict.fromkeys(("ts", "cell", "phone", "n"), "string")
    tree = qualify(sqlglot.parse_one(text, dialect=Braided), schema={"calls": columns}, dialect=Braided, validate_qualify_columns=False)  # fmt: skip
    said = fold(tree, {stream})
    return said, tree.sql(dialect=Braided).replace("`", "")


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT b.cell, b.w.start AS s, m.most FROM ({X}) b JOIN {MOST} ON {ON} WHERE b.n > 2",
        f"SELECT b.cell, b.w.start AS s, m.most FROM {MOST} JOIN ({X}) b ON {ON} WHERE b.n > 2",
        f"WITH b AS ({X}) SELECT b.cell, b.w.start AS s, m.most FROM b JOIN {MOST.replace(f'({X}) x', 'b')} ON {ON} WHERE b.n > 2",
    ],
)
def test_rows_wait_with_the_aggregate_of_their_group(text: str) -> None:
    said, found = folded(text)
    assert said == ["b and m are computed together, without a join: m is an aggregate of the rows of b"]
    assert " JOIN " not in found
    assert found.count("WINDOW(calls.ts, '10 seconds') AS w") == 1
    # By the window itself Spark knows how late results are.
    assert "SELECT m.braided_row.cell AS cell, m.w.start AS s, m.most AS most FROM" in found
    conditions = found.rpartition(" WHERE ")[2]
    assert conditions == (
        "m.w IS NOT NULL AND m.phone IS NOT NULL AND m.braided_row.n >= m.most AND m.braided_row.n > 2"
    )


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT b.n FROM ({X}) b LEFT JOIN {MOST} ON {ON}",
        f"SELECT b.n FROM ({X}) b JOIN {MOST} ON b.w = m.w",  # a row would meet many groups
        f"SELECT b.n FROM ({X}) b JOIN {MOST} ON b.w = m.w AND b.phone >= m.phone",
        f"SELECT b.n FROM ({X}) b JOIN {MOST} ON b.w = m.w AND b.cell = m.phone",
        f"SELECT b.n FROM ({X} HAVING n > 2) b JOIN {MOST} ON {ON}",
        f"SELECT b.n FROM ({X}) b JOIN {MOST.replace('GROUP BY w, phone', 'GROUP BY w, phone HAVING most > 1')} ON {ON}",
        f"SELECT b.n FROM ({X}) b JOIN {MOST.replace(') x GROUP', ') x WHERE n > 1 GROUP')} ON {ON}",
        f"SELECT b.n FROM ({X}) b JOIN {MOST.replace('GROUP BY w, phone', 'GROUP BY CUBE (w, phone)')} ON {ON}",
        f"SELECT /*+ BRAIDED('b', 'lateness=1 minute') */ b.n FROM ({X}) b JOIN {MOST} ON {ON}",
        f"SELECT b.n FROM ({X}) b JOIN {MOST} ON {ON} AND b.n > (SELECT max(n) FROM calls)",
        f"SELECT b.n FROM ({X}) b(w, cell, n, phone) JOIN {MOST} ON {ON}",
        f"SELECT b.n FROM ({X}) b JOIN {MOST} ON {ON} JOIN calls c ON c.n = b.n",
        "SELECT b.n FROM (SELECT ts AS w, n FROM calls) b "
        "JOIN (SELECT w, max(n) AS most FROM (SELECT ts AS w, n FROM calls) x GROUP BY w) m ON b.w = m.w",  # of any size
    ],
)
def test_other_joins_stay_as_they_are(text: str) -> None:
    said, found = folded(text)
    assert said == []
    assert " JOIN " in found


def test_tables_stay_as_they_are() -> None:
    """Their groups may have any number of rows."""
    said, found = folded(f"SELECT b.n FROM ({X}) b JOIN {MOST} ON {ON}", stream="another")
    assert said == []
    assert " JOIN " in found
