"""The registry of what the contract is tried on: every kind of spec with its naive reading and its variants.

A new kind of spec needs a `Kind` here and nothing else; `test_coverage.py` fails until there is one.
"""

from __future__ import annotations

from braided.operators.asof.spec import AsofSpec
from braided.operators.bounded.group_spec import GroupSpec
from braided.operators.detect.spec import DetectSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.match.spec import MatchSpec
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.spec import Spec, spec_kinds
from support.contract.case_asof import ASOFS
from support.contract.case_detect import DETECTIONS
from support.contract.case_group import GROUPS
from support.contract.case_join import JOINS
from support.contract.case_match import MATCHES
from support.contract.case_multijoin import MULTIJOINS
from support.contract.case_order import ORDERS
from support.contract.case_row_windows import ROW_WINDOWS
from support.contract.kinds import Kind

KINDS: dict[type[Spec], Kind] = {
    JoinSpec: JOINS,
    MultiJoinSpec: MULTIJOINS,
    GroupSpec: GROUPS,
    OrderSpec: ORDERS,
    MatchSpec: MATCHES,
    DetectSpec: DETECTIONS,
    RowWindowsSpec: ROW_WINDOWS,
    AsofSpec: ASOFS,
}


def without_case() -> list[str]:
    """Return the kinds of specs that the suite does not know."""
    return [kind for kind, spec in spec_kinds().items() if spec not in KINDS]
