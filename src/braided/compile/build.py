"""The one way from a spec to an operator."""

from __future__ import annotations

from collections.abc import Sequence

from braided.compile.detect import build_detect
from braided.compile.group import build_group
from braided.compile.join import build_join
from braided.compile.match import build_match
from braided.compile.multijoin import build_multijoin
from braided.compile.order import build_order
from braided.compile.plan import Plan, Setting
from braided.compile.row_windows import build_row_windows
from braided.compile.stream import Stream
from braided.specs.detect import DetectSpec
from braided.specs.group import GroupSpec
from braided.specs.join import JoinSpec
from braided.specs.match import MatchSpec
from braided.specs.multijoin import MultiJoinSpec
from braided.specs.order import OrderSpec
from braided.specs.row_windows import RowWindowsSpec
from braided.specs.spec import Spec

_BUILDERS = {
    JoinSpec: build_join,
    MultiJoinSpec: build_multijoin,
    GroupSpec: build_group,
    OrderSpec: build_order,
    MatchSpec: build_match,
    DetectSpec: build_detect,
    RowWindowsSpec: build_row_windows,
}


def build(spec: Spec, streams: Sequence[Stream], setting: Setting | None = None) -> Plan:
    """Return the plan of a spec over its streams.

    >>> import pyarrow as pa
    >>> rows = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    >>> plan = build(JoinSpec(on="k", time="t", within="1 second"), [Stream("left", rows), Stream("right", rows)])
    >>> plan.operator.output.names
    ['k', 't', 't_right']
    >>> order = build(OrderSpec(time="t"), [plan.as_stream("input")])
    >>> order.operator.lateness[0].floor  # what the join hands on
    '12 seconds'
    """
    plan: Plan = _BUILDERS[type(spec)](spec, tuple(streams), setting or Setting())  # type: ignore[operator]
    return plan
