"""The schema of a topic with a DataFrame's rows, and the marks of its times."""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from braided.errors import OptionError
from braided.spark.arrow_types import arrow_of
from braided.spark.watermark import BEHIND, DELAY, MIXED, OFFSETS, OPTIONAL
from braided.storage.topic import Topic, create_topic

# Not that a delay is exact: readers use the progress in the topic, which is never later.
_KEPT = (DELAY, BEHIND, OFFSETS, OPTIONAL, MIXED)


def create_topic_of(schema: StructType, path: str) -> Topic:
    """Return the topic of rows of a schema; create it if it does not exist."""
    topic = create_topic(path, topic_schema(schema))
    marks = {
        field.name: {m: field.metadata[m] for m in _KEPT if m in (field.metadata or {})} for field in schema.fields
    }
    marks = {column: found for column, found in marks.items() if found}
    if topic.marks != marks:
        topic.mark(marks)
    return topic


def topic_schema(schema: StructType) -> str:
    """Return the schema of a topic, as JSON; refuse rows that cannot be in one."""
    arrow_of(schema, "df")
    if not schema.fields:
        raise OptionError("df: has no column; select at least one")
    if len({name.lower() for name in schema.names}) != len(schema.names):
        raise OptionError(f"df: two of its columns share a name: {', '.join(schema.names)}; rename one")
    plain = StructType([StructField(field.name, field.dataType, True) for field in schema.fields])
    return str(plain.json())
