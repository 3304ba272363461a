"""The demo: what it writes, what it notices, and that it leaves nothing behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import braided
from braided.cli import demo, main
from braided.cli.batches import Batch, WorkerLoad
from braided.cli.display import LineDisplay, LiveDisplay
from braided.cli.oracle import Check, check_result
from braided.cli.page import draw_page
from braided.cli.session import find_java_problem
from braided.workloads.calls import ORIGIN

SECOND = 1_000_000
PLAN = demo.Plan(rows=2_000, seconds=16)


def make_batches(count: int) -> list[Batch]:
    loads = (WorkerLoad(70, 9, 1_400, 45_000), WorkerLoad(30, 4, 600, 19_000))
    return [
        Batch(100, 0.5, 250 * (number + 1), 3, (ORIGIN + 4 * SECOND * (number + 1),) * 2, loads)
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """The folder with the demo's input streams, and their join as the local runtime makes it."""
    folder = tmp_path_factory.mktemp("streams")
    calls, numbers = PLAN.generate()
    for name, table in (("calls", calls), ("numbers", numbers)):
        demo.write_stream(folder / name, table, PLAN)
    found = braided.local.join(
        calls,
        numbers,
        on=[("caller", "phone")],
        time=("start", "seen_at"),
        within=demo.WITHIN,
        lateness=demo.LATENESS,
        arrival="arrived",
        batch_rows=500,
    )
    return folder, found.table


TAMPERED: dict[str, tuple[Callable[[pa.Table], pa.Table], int, int]] = {
    "nothing": (lambda table: table, 0, 0),
    "another order": (lambda table: table.sort_by("callee"), 0, 0),
    "a row lost": (lambda table: table.slice(1), 1, 0),
    "a row doubled": (lambda table: pa.concat_tables([table, table.slice(7, 1)]), 0, 1),
    "a row in place of another": (lambda table: pa.concat_tables([table.slice(1), table.slice(7, 1)]), 1, 1),
    "a value changed": (
        lambda table: table.set_column(
            table.schema.get_field_index("cell"),
            "cell",
            pa.concat_arrays([pa.array([-1], pa.int32()), table["cell"].slice(1).combine_chunks()]),
        ),
        1,
        1,
    ),
}


@pytest.mark.parametrize("change", TAMPERED)
def test_a_wrong_result_is_noticed(joined: tuple[Path, pa.Table], tmp_path: Path, change: str) -> None:
    folder, table = joined
    tamper, missing, surplus = TAMPERED[change]
    found = tamper(table)
    pq.write_table(found, tmp_path / "0.parquet")
    check = check_result(folder / "calls", folder / "numbers", tmp_path, 10 * SECOND)
    assert (check.rows, check.missing, check.surplus) == (found.num_rows, missing, surplus)
    assert check.equal == (missing == surplus == 0)
    assert table.num_rows > 1000


def test_files_hold_the_stream_in_order_of_arrival(joined: tuple[Path, pa.Table]) -> None:
    folder, _ = joined
    calls, _ = PLAN.generate()
    files = sorted((folder / "calls").iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(files) == PLAN.batches == 4
    assert pa.concat_tables(pq.read_table(file) for file in files) == calls.drop_columns("arrived")


@pytest.mark.parametrize("check", [Check(10, 0, 0), Check(10, 2, 1)], ids=["equal", "wrong"])
def test_the_exit_code_tells_of_a_wrong_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], check: Check
) -> None:
    monkeypatch.setattr(demo, "find_java_problem", lambda: None)
    monkeypatch.setattr(demo, "_run", lambda *_: check)
    assert demo.run_demo(PLAN, tmp_path, color=False) == (0 if check.equal else 1)
    told = (
        "braided demo: the result is NOT equal to DuckDB's: of 10 rows DuckDB lacks 1, and 2 of DuckDB's are "
        "missing; please report this as a bug\n"
    )
    assert capfd.readouterr().err == ("" if check.equal else told)


def test_a_failure_is_one_line_and_the_log_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Check:
        os.write(2, b"noise of the JVM\n")
        raise RuntimeError("no space left\nat line 1")

    monkeypatch.setattr(demo, "find_java_problem", lambda: None)
    monkeypatch.setattr(demo, "_run", fail)
    assert demo.run_demo(PLAN, tmp_path, color=False) == demo.FAILED
    log = tmp_path / "spark.log"
    assert capfd.readouterr().err == f"braided demo: no space left\nbraided demo: Spark's log is {log}\n"
    assert log.read_text() == "noise of the JVM\n"


def test_the_page_is_well_formed_and_fetches_nothing() -> None:
    page = draw_page(demo.describe_run(PLAN, make_batches(4), 2.0, Check(1_000, 0, 0)))
    root = ElementTree.fromstring(page)
    assert len(root.findall(".//svg")) == 3
    assert "1,000 rows, equal to DuckDB's" in "".join(root.itertext())
    assert "http" not in page
    assert "src=" not in page


def test_plain_lines_show_each_batch_once() -> None:
    screen = io.StringIO()
    display = LineDisplay(screen, expected=4, origin=ORIGIN)
    for known in (0, 1, 1, 3):
        display.show(make_batches(known), elapsed=1.0)
    lines = screen.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[2] == (
        "batch     3/4  100 rows  200 rows/s  750 results  state 1,400 + 600 rows, 64.0 kB  cpu 9 + 4 ms  "
        "clock 0:12.0  late 3"
    )


def test_a_terminal_is_redrawn_in_place() -> None:
    screen = io.StringIO()
    display = LiveDisplay(screen, expected=4, origin=ORIGIN, color=False)
    for known in (0, 1, 2):
        display.show(make_batches(known), elapsed=1.0)
    drawn = screen.getvalue()
    waiting, first, second = (len(part.splitlines()) for part in drawn.split("\x1b[?7l")[1:])
    assert (waiting, first, second) == (3, 7, 7)  # the block and what follows its last line break
    assert "\x1b[2A" in drawn
    assert drawn.count("\x1b[6A") == 1
    assert "worker 1  ████████████                        600 rows  19.0 kB      4 cpu ms" in drawn
    assert "\x1b[36m" not in drawn


def fake_java(folder: Path, version: str) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS' >&2\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "told"),
    [("17.0.1", None), ("21", None), ("11.0.2", "11"), ("1.8.0_392", "8")],
)
def test_an_old_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, told: str | None) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    expected = told and f"{tmp_path}/bin/java is Java {told}; Spark needs Java 17 or later"
    assert find_java_problem() == expected


def test_what_is_missing_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["demo"]) == demo.CANNOT_START
    assert capsys.readouterr().err == (
        f"braided demo: found no Java in JAVA_HOME={tmp_path}; Spark needs Java 17 or later\n"
    )
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda _: None)
    assert main(["demo"]) == demo.CANNOT_START
    assert capsys.readouterr().err == ("braided demo: needs DuckDB to check the result; pip install 'braided[demo]'\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demo", "--rows", "many"], "argument --rows: 'many' is not a whole number"),
        (["demo", "--seconds", "1"], "argument --seconds: '1' is too small; write 4 or more"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_bad_arguments_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"braided {braided.__version__}\n"


def start_demo(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    (tmp_path / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "braided.cli", "demo", "--out", str(tmp_path / "out"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )


@pytest.mark.spark
def test_the_demo_runs_and_leaves_only_its_picture(tmp_path: Path) -> None:
    printed, errors = start_demo(tmp_path, "--rows", "4000", "--seconds", "20").communicate()
    assert errors == ""
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines] == [
        "streams", "join", "spark", *["batch"] * 5, "joined", "state", "hot", "lateness", "checked", "picture",
    ]  # fmt: skip
    assert lines[-2].endswith("rows, equal to DuckDB's")
    assert lines[-3] == "lateness  5 seconds allowed, 0 rows later than that"
    assert len(ElementTree.parse(tmp_path / "out" / "demo.html").findall(".//svg")) == 3
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["out", "out/demo.html", "out/demo.json", "tmp"]


@pytest.mark.spark
def test_an_interrupt_stops_the_demo_and_cleans_up(tmp_path: Path) -> None:
    running = start_demo(tmp_path, "--rows", "40000", "--seconds", "400")
    assert running.stdout is not None
    assert any(line.startswith("spark") for line in running.stdout)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate()
    assert running.returncode == demo.STOPPED
    assert errors == "braided demo: stopped\n"
    assert not list((tmp_path / "tmp").iterdir())
