"""Keys that only Spark can make comparable: of different types, which it casts, and structs and lists, as strings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from braided.errors import OptionError
from braided.routing.key_hashes import common_key_type
from braided.spark.catalyst import compared_types
from braided.spark.inputs import arrow_schema
from braided.spark.names import numbered, quoted
from braided.spark.nested_keys import flat_key
from braided.sqltext.joins import Cut, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cast_keys(cut: Cut, inputs: dict[str, DataFrame], sources: dict[str, Source]) -> None:
    """Add a column to inputs for each key that only Spark's casts make comparable, and let the joins use it."""
    actual = {alias: {name.lower(): name for name in inputs[alias].columns} for alias in cut.columns}
    for step in cut.steps:
        for at, key in enumerate(step.keys):
            names = [actual[column.table][column.name] for column in key]
            if _hashes(key, names, inputs):
                continue
            fields = [inputs[column.table].schema[name] for column, name in zip(key, names, strict=True)]
            wanted = compared_types(
                inputs[key[0].table].sparkSession, *(each.dataType.simpleString() for each in fields)
            )
            new = []
            for column, name, kind, own in zip(key, names, wanted, fields, strict=True):
                text = quoted(name) if kind == own.dataType.simpleString() else f"CAST({quoted(name)} AS {kind})"
                alias = column.table
                flat = flat_key(text, inputs[alias].selectExpr(text).schema[0].dataType)
                if text == quoted(name) and flat is None:
                    new.append(column)
                    continue
                cast = numbered(f"{name.lower()}__as_key", inputs[alias].columns)
                inputs[alias] = inputs[alias].selectExpr("*", f"{flat or text} AS {quoted(cast)}")
                actual[alias][cast] = cast
                sources[alias] = replace(
                    sources[alias], types={**sources[alias].types, cast: kind if flat is None else "string"}
                )
                cut.columns[alias].append(cast)
                new.append(exp.column(exp.to_identifier(cast), alias))
            step.keys[at] = new[0], new[1]


def _hashes(key: tuple[exp.Column, exp.Column], names: list[str], inputs: dict[str, DataFrame]) -> bool:
    """Whether the columns of a key can be compared without a cast."""
    kinds = [
        arrow_schema(inputs[column.table].select(quoted(name)), column.table).field(0).type
        for column, name in zip(key, names, strict=True)
    ]
    try:
        common_key_type(kinds[0], kinds[1], (names[0], names[1]))
    except OptionError:
        return False
    return True
