"""What the tasks of a Python process of Spark's have in common, without a JVM."""

from __future__ import annotations

import itertools

import pytest

from braided.spark import tasks


@pytest.mark.long
def test_what_later_tasks_load_is_out_of_the_collectors_sight_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, frozen = 0, []
    monkeypatch.setattr(tasks, "_ended", itertools.count(1))
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(ended))
    for ended in range(1, 40):  # noqa: B007
        tasks.freeze_loaded()
    assert frozen == [1, 2, 4, 8, 16, 32]
