"""Reports are short by default, whatever the number of workers, and complete on request."""

from __future__ import annotations

from typing import Any

import pytest

from braided.runtime.report import Report


def report_of(workers: int, **more: Any) -> Report:
    def counts(worker: int) -> dict[str, Any]:
        names = ("rows", "results", "cpu_ms", "stored_rows", "stored_bytes", "runs", "state_reads", "cached_reads")
        return dict.fromkeys(names, 10 * worker + 1)

    made = [
        {"worker": worker, "workers": workers, "batches": 2, "table": [1, "x"], "last": counts(worker),
         "total": counts(worker), **({"recall": [[1.0] * 6] * 2} if more.get("bounded") else {})}
        for worker in range(workers)
    ]  # fmt: skip
    made[0]["streams"] = [{"rows": 5}, {"rows": 6}]
    made[0]["last_streams"] = [5, 6]
    return Report.of_workers("hits", 1, made, more.get("routing"))


def routing_of(workers: int) -> dict[str, Any]:
    """A routing in which every worker has a load, and 30 hot keys have grids over all workers."""
    return {
        "scheme": "auto", "version": 7, "in_use": workers, "workers": workers, "alive": workers, "moving": 0,
        "grids": [{"what": f"hot key {k}", "shape": f"{workers} x 1", "workers": list(range(workers))} for k in range(30)],
        "loads": [{"load": [worker / workers, 0.5, 0.5], "level": 0} for worker in range(workers)],
        "decisions": [],
    }  # fmt: skip


def test_a_report_of_200_workers_is_short() -> None:
    report = report_of(200)
    lines = str(report).splitlines()
    assert len(lines) < 12
    assert lines[0] == "hits: 199,100 results in 2 batches".replace("199,100", f"{sum(range(1, 2000, 10)):,}")
    table = [line.split() for line in lines if line.split()[0].isdigit() or line.split()[0] == "all"]
    assert [row[0] for row in table] == ["all", "199", "198", "197"], "the busiest workers, after the sum of all"
    assert table[0][2] == f"{sum(range(1, 2000, 10)):,}"
    assert lines[-1] == "  and 197 more workers: full=True"


def test_a_report_is_complete_on_request() -> None:
    report = report_of(200)
    lines = report.text(full=True).splitlines()
    assert [line.split()[0] for line in lines if line.split()[0].isdigit()] == [str(worker) for worker in range(200)]
    assert "more" not in lines[-1]
    assert report.to_dict() == report_of(200).to_dict()
    assert "full" not in report.to_dict()
    assert len(report.to_dict()["workers"]) == 200


@pytest.mark.parametrize("bounded", [False, True])
def test_routing_and_recall_of_200_workers_are_short_too(bounded: bool) -> None:
    report = report_of(200, routing=routing_of(200), bounded=bounded)
    lines = str(report).splitlines()
    assert len(lines) < 35
    assert max(map(len, lines)) < 160
    assert "    worker 199: load 0.99 now, 0.50 over 5 batches, 0.50 over 15" in lines
    full = report.text(full=True)
    assert full.count("hot key") == 30
    assert full.count("over 5 batches") == 200


def test_a_report_of_a_few_workers_shows_all_of_them_in_order() -> None:
    report = report_of(4, routing=routing_of(4))
    for text in (str(report), report.text(full=True)):
        assert [line.split()[0] for line in text.splitlines() if line.split()[0].isdigit()] == ["0", "1", "2", "3"]
        assert text.count("over 5 batches") == 4
    assert "more workers" not in str(report)
