"""The watermarks of a join's inputs become its lateness; an aggregate after it closes windows by the join's clocks.

```
 Join on phone                          ->   Join on phone, lateness 10 seconds and 20 seconds
 +- Source 0, watermark of 10 seconds        +- WithoutWatermark ts
 +- Source 1, watermark of 20 seconds        |  +- Source 0, watermark of 10 seconds
                                             +- WithoutWatermark ts
                                                +- Source 1, watermark of 20 seconds
```

This is a part of `PartialAggregation` and not a separate rule: a watermark may be removed only if the aggregate moves
into the join. Otherwise Spark would accept the aggregate without a watermark, and never close its windows.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

from braided.operators.join.spec import JoinSpec
from braided.operators.shared_options import one_of
from braided.plan.nodes import Filter, Node, Operator, Project, WithoutWatermark
from braided.plan.optimiser import Analysis, NotApplied


def take_watermarks(join: Operator, analysis: Analysis) -> Operator:
    """Return a join whose inputs have no watermarks; raise `NotApplied` if one must stay."""
    if not any(analysis.has_watermark(side) for side in join.inputs):
        return join
    spec, physical = join.spec, analysis.physical(join)
    assert isinstance(spec, JoinSpec)
    inputs: list[Node] = []
    lateness: list[Any] = []
    for number, side in enumerate(join.inputs):
        time = physical.times[number]
        inputs.append(_without(side, time, analysis))
        rule = one_of(spec.lateness, number)
        marks = physical.streams[number].marks_of(time)
        if rule is None and marks.delay is None and marks.watermark is not None:
            rule = datetime.timedelta(microseconds=marks.watermark)
        lateness.append(rule)
    taken = replace(join, spec=replace(spec, lateness=tuple(lateness)), streams=tuple(inputs))
    if any(analysis.has_watermark(side) for side in taken.inputs):
        raise NotApplied("one of its inputs still has a watermark")
    return taken


def _without(node: Node, time: str, analysis: Analysis) -> Node:
    """Return an input of a join without the watermarks of its streams."""
    if not analysis.has_watermark(node):
        return node
    if not any(isinstance(below, Operator) for below in node.walk()):
        taken = WithoutWatermark(node, time)
        why = analysis.why_marked(taken)
        if why is not None:
            raise NotApplied(f"the watermark of {time} is {why}")
        return taken
    if isinstance(node, Operator) and isinstance(node.spec, JoinSpec):
        return take_watermarks(node, analysis)
    if isinstance(node, Filter | Project):
        return node.with_inputs([_without(node.input, time, analysis)])
    raise NotApplied(f"the watermark of {time} is below {node.kind}")
