"""The analysis of plans for the optimiser on the local runtime: schemas and physical plans."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from braided.operators.physical import EngineFeatures, Plan
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.plan.nodes import Node, Operator, Source, WithoutWatermark


class LocalAnalysis:
    """Answers the optimiser's questions about plans over Arrow data; see `Analysis`."""

    is_ansi = True
    needs_time_zone = False

    def __init__(self, schemas: Sequence[pa.Schema]) -> None:
        self._schemas = schemas

    def columns(self, node: Node) -> list[str]:
        """See `Analysis`."""
        names: list[str] = self.schema(node).names
        return names

    def is_streaming(self, node: Node) -> bool:
        """See `Analysis`."""
        return True

    def has_watermark(self, node: Node) -> bool:
        """See `Analysis`."""
        return False

    def why_marked(self, node: WithoutWatermark) -> str | None:
        """See `Analysis`: there are no watermarks here."""
        return None

    def reads_alike(self, node: Node, condition: str, again: str) -> bool:
        """See `Analysis`: there is only one parser of conditions here."""
        return True

    def is_safe(self, node: Node, expression: str) -> bool:
        """See `Analysis`: nothing is computed before a join here."""
        return False

    def physical(self, node: Operator) -> Plan:
        """See `Analysis`."""
        streams = [Stream(label, self.schema(side)) for side, label in zip(node.inputs, node.spec.labels, strict=True)]
        return build(node.spec, streams, EngineFeatures())

    def schema(self, node: Node) -> pa.Schema:
        """Return the schema of a node's rows."""
        if isinstance(node, Source):
            return self._schemas[node.number]
        assert isinstance(node, Operator)
        return self.physical(node).as_stream("input").schema
