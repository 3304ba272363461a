"""The seconds of a query's tasks: each counted once, running ones by how long they have run."""

from __future__ import annotations

from dataclasses import dataclass, field

from braided.fleet.hosting.task_time import TaskTime


@dataclass
class Jobs:
    """What Spark would say of the jobs of a query."""

    stages: dict[int, tuple[bool, list[int]]] = field(default_factory=dict)
    times: dict[int, tuple[float, list[float]]] = field(default_factory=dict)
    now: float = 100.0

    def jobs(self) -> list[int]:
        return list(self.stages)

    def job(self, number: int) -> tuple[bool, list[int]]:
        return self.stages[number]

    def task_times(self, stage: int, most: int) -> tuple[float, list[float]] | None:
        return self.times.get(stage)


def test_a_task_counts_while_it_runs_and_once_in_all() -> None:
    spark = Jobs({1: (True, [10])}, {10: (0.0, [98.0])})
    counted = TaskTime(spark, lambda: spark.now)
    assert counted.since_last() == 2.0
    spark.now = 103.0
    assert counted.since_last() == 3.0
    spark.stages, spark.times = {1: (False, [10])}, {10: (5.5, [])}
    assert counted.since_last() == 0.5
    assert counted.since_last() == 0.0


def test_a_stage_that_a_later_job_names_again_is_not_counted_again() -> None:
    spark = Jobs({1: (False, [10]), 2: (False, [10, 11])}, {10: (2.0, []), 11: (1.0, [])})
    counted = TaskTime(spark, lambda: spark.now)
    assert counted.since_last() == 3.0
    spark.stages[3] = (False, [11, 12])
    spark.times[12] = (0.25, [])
    assert counted.since_last() == 0.25


def test_a_stage_that_was_skipped_or_is_no_longer_kept_counts_nothing_more() -> None:
    spark = Jobs({1: (True, [10, 11])}, {10: (2.0, [])})
    counted = TaskTime(spark, lambda: spark.now)
    assert counted.since_last() == 2.0
    spark.times.clear()
    assert counted.since_last() == 0.0
