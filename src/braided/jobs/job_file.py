"""The content of a job file: sources, steps, a sink, and the needs of the query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

TOPIC = "topic"
KAFKA = "kafka"
NOW = "available now"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A stream, or a table, that Spark reads.

    format : any format of Spark, or ``"topic"`` for a directory that `braided.write_files` wrote.
    time, watermark : the event-time column and the delay of its watermark, if the query needs one.
    """

    format: str = "parquet"
    path: str | None = None
    schema: str | None = None
    time: str | None = None
    watermark: str | None = None
    max_files: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A stream that is made from others: by `braided.sql`, or by a function ``module:function`` of DataFrames.

    inputs : the streams that are passed to the function, in this order; a SQL text names its streams itself.
    options : for every join in the SQL text (docs/reference/sql.md).
    """

    name: str
    sql: str | None = None
    python: str | None = None
    inputs: tuple[str, ...] = ()
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sink:
    """The target of results: any sink of Spark, or a topic. `input` is the stream to write, by default the last one."""

    format: str
    input: str = ""
    path: str | None = None
    mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a peer must have free."""

    cores: int = 1
    memory: str = "2 GB"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A whole query. `secrets` has values from the environment, which are never shown.

    places : for messages, the file and line of ``sources.NAME``, ``tables.NAME``, ``steps.0.sql`` and so on.
    operator : the operator's name in the ontology of a fleet (docs/how-to/peers.md).
    """

    name: str
    checkpoint: str
    sources: Mapping[str, Source]
    sink: Sink
    tables: Mapping[str, Source] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    trigger: str | None = None
    operator: str | None = None
    needs: Needs = Needs()
    spark: Mapping[str, str] = field(default_factory=dict)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def hide(self, text: str) -> str:
        """Return a message without the values that came from the environment."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            # Spark may have changed upper and lower case.
            text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE) if secret else text
        return text
