"""The only way from a spec to an operator."""

from __future__ import annotations

from collections.abc import Sequence

from braided.errors import BraidedError
from braided.operators.asof.build import build_asof
from braided.operators.asof.spec import AsofSpec
from braided.operators.bounded.build_group import build_group
from braided.operators.bounded.group_spec import GroupSpec
from braided.operators.detect.build import build_detect
from braided.operators.detect.spec import DetectSpec
from braided.operators.join.build import build_join
from braided.operators.join.spec import JoinSpec
from braided.operators.match.build import build_match
from braided.operators.match.spec import MatchSpec
from braided.operators.multijoin.build import build_multijoin
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.order.build import build_order
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures, Plan
from braided.operators.row_windows.build import build_row_windows
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.spec import Spec
from braided.operators.stream import Stream

_BUILDERS = {
    JoinSpec: build_join,
    MultiJoinSpec: build_multijoin,
    GroupSpec: build_group,
    OrderSpec: build_order,
    MatchSpec: build_match,
    DetectSpec: build_detect,
    RowWindowsSpec: build_row_windows,
    AsofSpec: build_asof,
}


def build(spec: Spec, streams: Sequence[Stream], setting: EngineFeatures | None = None) -> Plan:
    """Return the plan of a spec over its streams.

    >>> import pyarrow as pa
    >>> rows = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    >>> plan = build(JoinSpec(on="k", time="t", within="1 second"), [Stream("left", rows), Stream("right", rows)])
    >>> plan.operator.output.names
    ['k', 't', 't_right']
    >>> order = build(OrderSpec(time="t"), [plan.as_stream("input")])
    >>> order.operator.lateness[0].floor  # the delay that the join propagates
    '12 seconds'
    """
    builder = _BUILDERS.get(type(spec))
    if builder is None:
        raise BraidedError(f"{type(spec).__name__} has no builder; add it to {__name__}")
    plan: Plan = builder(spec, tuple(streams), setting or EngineFeatures())  # type: ignore[operator]
    return plan
