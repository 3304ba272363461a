"""Disks that fill up, files that are damaged or lost, batches and rows as they should not be: in one session."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.chaos import SmallDisk, can_mount
from support.crashes import expected, write_streams
from support.routing_cases import RandomController

import braided
from braided.spark.session_operators import registry_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "k long, ts timestamp, id long"
FILES, EARLY = 10, 6
MESSAGES = ("control='", "the routing went back from version")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Both inputs; those of later batches are held back, in `later`."""
    write_streams(tmp_path, files=FILES, rows=300, seed=41)
    for side in ("left", "right"):
        (tmp_path / "later" / side).mkdir(parents=True)
        for number in range(EARLY, FILES):
            (tmp_path / side / f"{number:05d}.parquet").rename(tmp_path / "later" / side / f"{number:05d}.parquet")
    return tmp_path


@pytest.fixture(autouse=True)
def _ever_new_routings(spark: SparkSession) -> Iterator[None]:
    registry = registry_of(spark)
    before, registry.make_controller = registry.make_controller, RandomController  # type: ignore[assignment]
    yield
    registry.make_controller = before


def bring_later(root: Path) -> None:
    for side in ("left", "right"):
        for path in (root / "later" / side).iterdir():
            path.rename(root / side / path.name)


def run(
    spark: SparkSession,
    root: Path,
    *,
    home: Path | None = None,
    direct: bool = True,
    control: bool = False,
    lateness: str = "5 seconds",
) -> None:
    """Join all that is there, one file a side and batch; what the query keeps and writes is in `home`."""
    home = home or root
    sides = [
        braided.files(spark, root / side, schema=DDL, max_files=1)
        if direct
        else spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(root / side))
        for side in ("left", "right")
    ]
    options: dict[str, Any] = {"control": str(home / "control")} if control else {}
    joined = braided.join(*sides, on="k", time="ts", within="10 seconds", lateness=lateness, **options)
    if direct:
        query = braided.write_files(joined, home / "out", checkpoint=home / "check", trigger="available now")
    else:
        writer = joined.writeStream.format("parquet").option("checkpointLocation", str(home / "check"))
        query = writer.trigger(availableNow=True).start(str(home / "out"))
    query.awaitTermination()


def found(spark: SparkSession, home: Path, *, direct: bool = True) -> Counter[Any]:
    paths = braided.topic(home / "out").files() if direct else [str(home / "out")]
    return Counter((row[0], row[1]) for row in spark.read.parquet(*paths).select("id", "id_right").collect())


@pytest.mark.skipif(not can_mount(), reason="only root can mount a small disk")
@pytest.mark.parametrize("room", [0, 20_000])
@pytest.mark.parametrize(
    ("part", "direct", "said"),
    [
        ("check", True, "No space left on device"),
        ("out", False, "TASK_WRITE_FAILED|No space left on device"),
        ("out", True, "cannot (be written|write).*No space left on device; free some space"),
        ("control", True, "cannot write (pins/|.check-).*No space left on device; free some space"),
    ],
)
def test_a_full_disk_stops_the_query_and_room_lets_it_go_on(
    spark: SparkSession, root: Path, part: str, direct: bool, said: str, room: int
) -> None:
    with SmallDisk(root / "disk", 64) as disk:
        (disk.place / part).mkdir()
        (root / part).symlink_to(disk.place / part)
        how = {"direct": direct, "control": part == "control"}
        run(spark, root, **how)
        bring_later(root)
        disk.fill(room)
        with pytest.raises(Exception, match=said):
            run(spark, root, **how)
        disk.empty()
        run(spark, root, **how)
        assert found(spark, root, direct=direct) == expected(root)
        if direct:
            topic = braided.topic(root / "out")
            there = {path.name for path in Path(topic.data).rglob("*.parquet")}
            assert there == {Path(name).name for name in topic.files()}, "files of failed attempts are left"


def test_a_control_file_is_damaged_or_removed(spark: SparkSession, root: Path) -> None:
    """Every kind of file, in a copy of all that the query has; the last batch runs again, as after a crash."""
    run(spark, root, control=True)
    braided.scale(str(root / "control"), 2)
    (root / "control" / "decisions.jsonl").write_text('{"batch": 1}\n')  # this controller gives no reasons
    last = max((root / "check" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    bring_later(root)
    stopped = set()
    for file in ("owner.json", "tables", "pins", "wanted.json", "decisions.jsonl"):
        for how in ("damaged", "removed"):
            home = root / f"{file}-{how}"
            for part in ("check", "control", "out"):
                shutil.copytree(root / part, home / part)
            broken = home / "control" / file
            if broken.is_dir():
                broken = max(broken.iterdir(), key=lambda path: int(path.stem))
            hurt(broken, how)
            said = failure(spark, root, home)
            if said is not None:
                stopped.add((file, how))
                assert any(message in said for message in MESSAGES), said
                shutil.rmtree(home / "control")
                shutil.copytree(root / "control", home / "control")
                run(spark, root, home=home, control=True)
            assert found(spark, home) == expected(root), (file, how)
    # What docs/concepts/faults.md says. Whether a batch has used the newest table depends on when the controller made it.
    assert stopped - {("tables", "removed")} == {("owner.json", "damaged"), ("tables", "damaged"), ("pins", "damaged")}


def failure(spark: SparkSession, root: Path, home: Path) -> str | None:
    """Return why the query stopped, None if it did not."""
    try:
        run(spark, root, home=home, control=True)
    except Exception as error:
        return str(error)
    return None


def hurt(file: Path, how: str) -> None:
    """Remove a file, or change some of its bytes."""
    if how == "removed":
        file.unlink()
        return
    content = bytearray(file.read_bytes())
    rng = random.Random(file.name)
    for at in rng.sample(range(len(content)), min(5, len(content))):
        content[at] ^= 0x15
    file.write_bytes(content)


def test_a_batch_is_ten_times_larger_than_the_last(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=400, seed=22)
    write_streams(tmp_path / "more", files=5, rows=4000, seed=23)
    for side in ("left", "right"):
        (tmp_path / "more" / side / "00004.parquet").rename(tmp_path / side / "00004.parquet")
    run(spark, tmp_path, control=True)
    assert found(spark, tmp_path) == expected(tmp_path)


def test_a_source_repeats_rows(spark: SparkSession, root: Path) -> None:
    for side in ("left", "right"):
        for number in (2, 5):
            shutil.copy2(root / side / f"{number:05d}.parquet", root / side / f"{number:05d}-again.parquet")
    right = expected(root)
    assert max(right.values()) == 4
    run(spark, root, lateness="15 seconds")  # what is repeated comes a file later
    assert found(spark, root) == right
