"""A dialect of sqlglot: its Spark SQL, with the parts that are missing there."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark

__all__ = ["Braided"]


class Braided(Spark):  # type: ignore[misc]
    """Spark's dialect in which `window` is always a function; queries with named windows are left to Spark."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        """``GROUP BY window(ts, '1 minute')`` can be parsed only without the keyword WINDOW."""

        KEYWORDS: ClassVar[dict[str, Any]] = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"
        }

    class Parser(Spark.Parser):  # type: ignore[misc]
        """The parser, with the alternative names of aggregates."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **Spark.Parser.FUNCTIONS,
            "MEAN": exp.Avg.from_arg_list,
            "EVERY": exp.LogicalAnd.from_arg_list,
            "SOME": exp.LogicalOr.from_arg_list,
        }

    class Generator(Spark.Generator):  # type: ignore[misc]
        """The generator, which writes `x IS NOT NULL`: `NOT x IS NULL` is another expression for Spark."""

        def not_sql(self, expression: exp.Not) -> str:
            inner = expression.this
            if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
                return f"{self.sql(inner, 'this')} IS NOT NULL"
            return str(super().not_sql(expression))
