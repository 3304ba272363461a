"""`format("braided")` as a sink without Spark: a batch is committed once, wherever the driver dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import OptionError, TopicError
from braided.spark.source import BraidedSource
from braided.spark.topic_sink import Written, commit_batch
from braided.storage.files import LocalFiles
from braided.storage.topic import APPENDED, Topic, create_topic
from braided.storage.writing import DataFile, FileTarget, batch_folder

SCHEMA = pa.schema([("x", pa.int64())])
DDL = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'


class _Killed(BaseException):
    """The process ends here."""


class _Query:
    """A query with a checkpoint, whose batch n has the values 10n and 10n + 1."""

    def __init__(self, root: Path, topic: Topic, *, readable: bool = True) -> None:
        self.topic, self._root, self._checkpoint = topic, root, str(root) if readable else None
        (root / "offsets").mkdir(parents=True)
        (root / "metadata").write_text(json.dumps({"id": "q"}))

    def plan(self, batch: int) -> None:
        (self._root / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{batch}")

    def run(self, batch: int, values: list[int] | None = None) -> None:
        """Write and commit a batch as Spark does: its tasks write anew each time, and a new process commits."""
        self.plan(batch)
        values = [10 * batch, 10 * batch + 1] if values is None else values
        messages = [Written("q", tuple(_file(self.topic, batch, value))) for value in values]
        commit_batch(Topic(self.topic.location), self._checkpoint, messages, batch)


def _file(topic: Topic, batch: int, value: int) -> list[DataFile]:
    writer = FileTarget(topic.data).writer(batch_folder(batch), value % 10, SCHEMA)
    writer.write(pa.record_batch([pa.array([value], pa.int64())], schema=SCHEMA))
    return writer.close()


def _values(topic: Topic) -> list[int]:
    return sorted(x for file in topic.files() for x in pq.read_table(file, partitioning=None)["x"].to_pylist())


def _kill_at(monkeypatch: pytest.MonkeyPatch, step: int, after: bool) -> Callable[[], bool]:
    """Kill at the given write to storage, before or after it took place; return whether it came to that."""
    steps = [0]
    for name in ("create", "replace", "delete"):
        real = getattr(LocalFiles, name)

        def killed(self: LocalFiles, *arguments: Any, real: Any = real) -> Any:
            steps[0] += 1
            if steps[0] == step and not after:
                raise _Killed
            done = real(self, *arguments)
            if steps[0] == step:
                raise _Killed
            return done

        monkeypatch.setattr(LocalFiles, name, killed)
    return lambda: steps[0] >= step


@pytest.mark.parametrize("readable", [True, False])
def test_a_kill_at_any_step_of_a_commit_loses_and_doubles_nothing(tmp_path: Path, readable: bool) -> None:
    kills = 0
    for batch in (0, 1, 3):
        for step in range(1, 40):
            for after in (False, True):
                folder = tmp_path / f"{batch}-{step}-{after}"
                topic = create_topic(f"{folder}/t", DDL)
                query = _Query(folder / "c", topic, readable=readable)
                for done in range(batch):
                    query.run(done)
                _file(topic, batch, 99)  # of an attempt that failed
                with pytest.MonkeyPatch.context() as patch:
                    reached = _kill_at(patch, step, after)
                    try:
                        query.run(batch)
                    except _Killed:
                        kills += 1
                    was_killed = reached()
                for again in range(batch, batch + 2):
                    query.run(again)
                assert _values(topic) == [10 * n + d for n in range(batch + 2) for d in (0, 1)], (step, after)
                on_disk = sorted(str(path) for path in Path(topic.data).rglob("*.parquet"))
                assert on_disk == sorted(topic.files()), "what a failed attempt left was not swept"
            if not was_killed:
                break
        else:
            pytest.fail("a commit takes more steps than were tried")
    assert kills >= 18


@settings(max_examples=examples(80))
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12))
def test_batches_that_run_again_in_any_order_of_two_drivers(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    topic = create_topic(f"{folder}/t", DDL)
    query = _Query(folder / "c", topic)
    done = -1
    for back, _ in runs:
        batch = max(0, done + 1 - back)
        query.run(batch)
        done = max(done, batch)
    assert _values(topic) == [10 * n + d for n in range(done + 1) for d in (0, 1)]


def test_a_batch_over_other_input_is_refused(tmp_path: Path) -> None:
    topic = create_topic(f"{tmp_path}/t", DDL)
    query = _Query(tmp_path / "c", topic)
    query.run(0)
    query.plan = lambda batch: (tmp_path / "c/offsets/0").write_text("v1\n{}\nother")  # type: ignore[method-assign,assignment]
    with pytest.raises(TopicError, match="batch 0 was committed with other input"):
        query.run(0)
    assert _values(topic) == [0, 1]


def test_a_writer_with_a_claim_is_fenced_and_strangers_are_refused(tmp_path: Path) -> None:
    topic = create_topic(f"{tmp_path}/t", DDL)
    query = _Query(tmp_path / "c", topic)
    query.run(0)
    claimed = topic.claim("q", 1)
    query.run(1)
    with pytest.raises(TopicError, match="another writer, of epoch 1, has taken the topic"):
        claimed.commit(2, "", _file(topic, 2, 20))
    with pytest.raises(TopicError, match="belongs to the query q, but this is batch jobs; use the checkpoint"):
        topic.append(_file(topic, 2, 20))
    with pytest.raises(TopicError, match="belongs to the query q, but this is z"):
        topic.resume("z", 2)
    assert _values(topic) == [0, 1, 10, 11]


def test_a_new_path_for_an_old_checkpoint_is_refused(tmp_path: Path) -> None:
    topic = create_topic(f"{tmp_path}/t", DDL)
    query = _Query(tmp_path / "c", topic)
    with pytest.raises(TopicError, match="is new, but the checkpoint has finished 4 batches"):
        query.run(4)
    # Batches without tasks and rows count too.
    query.plan(0)
    commit_batch(topic, str(tmp_path / "c"), [], 0)
    query.run(1)
    assert _values(topic) == [10, 11]


def test_batch_jobs_append_and_delete_only_what_is_not_in_the_log(tmp_path: Path) -> None:
    topic = create_topic(f"{tmp_path}/t", DDL)
    first, lost = _file(topic, 0, 1), _file(topic, 0, 2)
    topic.append(first)
    topic.discard_files(first)  # the commit came through, and its answer was lost
    topic.discard_files(lost)
    topic.append(_file(topic, 0, 3))
    assert _values(topic) == [1, 3]
    assert len(list(Path(topic.data).rglob("*.parquet"))) == 2
    assert [(m.kind, m.batch, m.owner) for m in topic.manifests()] == [
        ("claim", -1, APPENDED), ("batch", 0, APPENDED), ("batch", 1, APPENDED),
    ]  # fmt: skip


def test_paths_and_options_are_checked(tmp_path: Path) -> None:
    topic = create_topic(f"{tmp_path}/t", DDL)
    schema = BraidedSource({"path": topic.location}).schema()
    assert not isinstance(schema, str)
    assert schema.simpleString() == "struct<x:bigint>"
    # Spark's catalog hands over nothing of a table but its columns.
    assert BraidedSource({}).reader(schema).partitions()[0].value == []
    for options, message in {
        "": 'path: format("braided") needs one',
        f"{tmp_path}/none": "not one of: a table, a topic, a directory of Parquet files; use another path",
        f"{topic.location}|max_files=0": "max_files='0': write a number of 1 or more",
        f"{topic.location}|reader=../x": "reader='../x': not a valid name; use letters, digits",
    }.items():
        path, _, rest = options.partition("|")
        given_ = {"path": path, **dict([rest.split("=")] if rest else [])}
        with pytest.raises((OptionError, TopicError)) as refused:
            BraidedSource(given_).streamReader(BraidedSource({"path": path}).schema())
        assert message in str(refused.value)


def test_what_spark_imports_to_find_the_source_is_light() -> None:
    """Spark does so in every session that reads or writes by the name of a format."""
    code = "import sys, pyspark_braided; print([m for m in ('numba', 'pandas', 'braided.runtime') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
