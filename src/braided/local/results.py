"""What the local functions return."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from braided.runtime.report import Report


@dataclass(frozen=True)
class LocalResult:
    """The results as a pyarrow table, the report and, where asked for, the late rows."""

    table: pa.Table
    report: Report
    late: pa.Table | None = None


@dataclass(frozen=True)
class LocalGroupResult:
    """The rows of each join of a group as a pyarrow table, and the report."""

    tables: dict[str, pa.Table]
    report: Report
