"""The demo: what it writes, what it notices, and that it leaves nothing behind."""

from __future__ import annotations

import html
import io
import json
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.dashboards import batch_event, run_events

import braided
from braided.cli import demo, main
from braided.cli.demo_display import LineDisplay, LiveDisplay
from braided.cli.demo_oracle import Check, check_calls, check_legs
from braided.cli.demo_parts import Disorder, Memory, Part, Skew, Theta, draw_loads
from braided.cli.demo_run import Batch, Decision, Run, WorkerLoad, follow
from braided.cli.demo_streams import LEG_LATENESS, LEG_WHERE, LEG_WITHIN, WITHIN
from braided.cli.local_spark import find_java_problem
from braided.ui.history import History
from braided.ui.history_events import check_event
from braided.ui.history_files import HistoryReader
from braided.workloads.calls import ORIGIN

SECOND = 1_000_000
SKEW, THETA = Skew(2_000, 16), Theta(2_000, 16)
DEMO, LEGS = SKEW.streams, THETA.streams
PROMOTED = Decision(1, 2, "promote", "555, grid 2 x 1", "1.40 of a worker's fair share")
EQUAL = {"skew": Check(1_000, 0, 0), "theta": Check(7, 0, 0)}


def make_batches(count: int, *, adapts: bool = True) -> list[Batch]:
    """Batches of 400 rows and results on two workers, of which the second one levels from the fourth batch on."""
    uneven = (WorkerLoad(70, 230, 1.5, 9, 1_400, 45_000), WorkerLoad(30, 70, 0.5, 4, 600, 19_000))
    even = (WorkerLoad(55, 155, 1.05, 9, 1_400, 45_000), WorkerLoad(45, 145, 0.95, 4, 600, 19_000))
    return [
        Batch(
            number, 100, 0.5, 300 * (number + 1), 3, (ORIGIN + 4 * SECOND * (number + 1),) * 2,
            *((2, even) if number >= 3 and adapts else (1, uneven)),
        )
        for number in range(count)
    ]  # fmt: skip


def make_run(count: int, *decisions: Decision) -> Run:
    return Run("r", make_batches(count, adapts=bool(decisions)), list(decisions), 2.0)


def join_locally(part: Skew | Disorder | Memory) -> pa.Table:
    """A part's join as the local runtime makes it."""
    calls, numbers = part.streams.generate().values()
    return braided.local.join(
        calls,
        numbers,
        on=[("caller", "phone")],
        time=("start", "seen_at"),
        within=WITHIN,
        arrival="arrived",
        batch_rows=500,
        **part.options,
    ).table


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table, pa.Table]:
    """The folder with the demo's input streams, and their joins as the local runtime makes them."""
    folder = tmp_path_factory.mktemp("streams")
    DEMO.write(folder)
    LEGS.write(folder)
    incoming, outgoing = LEGS.generate().values()
    matched = braided.local.join(
        incoming,
        outgoing,
        time="start",
        within=LEG_WITHIN,
        where=LEG_WHERE,
        lateness=LEG_LATENESS,
        arrival="arrived",
        batch_rows=500,
    )
    return folder, join_locally(SKEW), matched.table


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
@pytest.mark.parametrize("which", ["calls", "legs"])
def test_a_wrong_result_is_noticed(
    joined: tuple[Path, pa.Table, pa.Table], tmp_path: Path, which: str, change: str
) -> None:
    folder, calls, legs = joined
    tamper, missing, surplus = TAMPERED[change]
    found = tamper(calls if which == "calls" else legs)
    pq.write_table(found, tmp_path / "0.parquet")
    if which == "calls":
        check = check_calls(folder / "calls", folder / "numbers", [str(tmp_path / "0.parquet")], 10 * SECOND)
    else:
        check = check_legs(folder / "incoming", folder / "outgoing", [str(tmp_path / "0.parquet")], 2 * SECOND)
    assert (check.rows, check.missing, check.surplus) == (found.num_rows, missing, surplus)
    assert check.equal == (missing == surplus == 0)
    assert found.num_rows > 1000


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"where": LEG_WHERE.replace("<= 2", "<= 3")}, "surplus"),
        ({"where": LEG_WHERE.replace("<= 2", "< 2")}, "missing"),
        ({"where": LEG_WHERE.replace(" AND l.cell <> r.cell", "")}, "surplus"),
        ({"within": "1 second"}, "missing"),
        ({"within": "3 seconds"}, "surplus"),
    ],
)
def test_the_oracle_knows_the_predicate_of_the_theta_join(
    joined: tuple[Path, pa.Table, pa.Table], tmp_path: Path, change: dict[str, str], wrong: str
) -> None:
    folder, _, right = joined
    options: dict[str, Any] = {"where": LEG_WHERE, "within": LEG_WITHIN, **change}
    incoming, outgoing = LEGS.generate().values()
    found = braided.local.join(
        incoming, outgoing, time="start", lateness=LEG_LATENESS, arrival="arrived", **options
    ).table  # fmt: skip
    pq.write_table(found, tmp_path / "0.parquet")
    check = check_legs(folder / "incoming", folder / "outgoing", [str(tmp_path / "0.parquet")], 2 * SECOND)
    assert {"surplus": check.surplus, "missing": check.missing}[wrong] == abs(found.num_rows - right.num_rows) > 0


@pytest.mark.parametrize("part", [Disorder(2_000, 64), Memory(2_000, 64)], ids=lambda part: part.name)
def test_other_parts_are_checked_for_what_they_promise(part: Disorder | Memory, tmp_path: Path) -> None:
    part.streams.write(tmp_path)
    table = join_locally(part)
    pq.write_table(table, tmp_path / "0.parquet")
    files = tmp_path / "calls", tmp_path / "numbers", [str(tmp_path / "0.parquet")]
    check = check_calls(*files, 10 * SECOND, may_miss=part.name == "memory")
    assert check.right
    assert check.rows > 500
    if part.name == "memory":
        assert 0.2 < check.recall < 1
        assert str(check) == f"{check.rows:,} rows, each one of DuckDB's, {check.recall:.1%} of them"
        assert not check_calls(*files, 10 * SECOND).right
    pq.write_table(pa.concat_tables([table, table.slice(7, 1)]), tmp_path / "0.parquet")
    assert not check_calls(*files, 10 * SECOND, may_miss=True).right, "no row comes twice, whatever is missing"


def test_files_hold_the_stream_in_order_of_arrival(joined: tuple[Path, pa.Table, pa.Table]) -> None:
    folder, _, _ = joined
    for streams, batches in ((DEMO, 4), (LEGS, 3)):
        for name, table in streams.generate().items():
            files = sorted((folder / name).iterdir(), key=lambda path: path.stat().st_mtime)
            assert len(files) == streams.batches == batches
            assert pa.concat_tables(pq.read_table(file) for file in files) == table.drop_columns("arrived")


@pytest.mark.parametrize("wrong", [(), ("skew",), ("theta",), ("skew", "theta")])
def test_the_exit_code_tells_of_a_wrong_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], wrong: tuple[str, ...]
) -> None:
    checks = {name: Check(10, 2, 1) if name in wrong else Check(10, 0, 0) for name in ("skew", "theta")}
    monkeypatch.setattr(demo, "find_java_problem", lambda: None)
    monkeypatch.setattr(demo, "_run", lambda *_: checks)
    assert demo.run_demo([SKEW], tmp_path, color=False) == (1 if wrong else 0)
    told = (
        "braided demo: {}: the result is NOT equal to DuckDB's: of 10 rows DuckDB lacks 1, and 2 of DuckDB's are "
        "missing; please report this as a bug\n"
    )
    assert capfd.readouterr().err == "".join(told.format(name) for name in wrong)


def test_a_failure_is_one_line_and_the_log_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> dict[str, Check]:
        os.write(2, b"noise of the JVM\n")
        raise RuntimeError("no space left\nat line 1")

    monkeypatch.setattr(demo, "find_java_problem", lambda: None)
    monkeypatch.setattr(demo, "_run", fail)
    assert demo.run_demo([SKEW], tmp_path, color=False) == demo.FAILED
    log = tmp_path / "spark.log"
    assert capfd.readouterr().err == f"braided demo: no space left\nbraided demo: Spark's log is {log}\n"
    assert log.read_text() == "noise of the JVM\n"


def test_before_is_the_batch_that_caused_the_promotion() -> None:
    compared = make_run(6, PROMOTED).before_and_after()
    assert compared is not None
    assert [batch.number for batch in compared] == [1, 5]
    assert [batch.imbalance for batch in compared] == [1.5, 1.05]
    assert make_run(3, PROMOTED).before_and_after() is None, "no batch used the new table yet"
    assert make_run(6).before_and_after() is None
    moved = Decision(0, 2, "move", "3 buckets", "worker 0: load 0.9")
    assert make_run(6, moved).before_and_after() is None
    assert make_run(6, moved, PROMOTED).before_and_after() == compared


def test_the_summary_tells_of_the_adaptation() -> None:
    told = SKEW.summarize(make_run(4, PROMOTED))
    assert told["adapted"] == "batch 2: promote 555, grid 2 x 1; 1.40 of a worker's fair share"
    assert told["balance"] == "largest load over mean 1.50 in batch 2, 1.05 in batch 4"
    assert draw_loads(make_run(4, PROMOTED)) == {
        "load": "before: batch 2             after: batch 4",
        "worker 0": "████████████████████ 1.50   ██████████████       1.05",
        "worker 1": "██████▋              0.50   ████████████▋        0.95",
    }
    never = make_run(4)
    assert draw_loads(never) == {}
    assert SKEW.summarize(never)["hot key"].endswith("; the streams ended before the routing could adapt")
    assert "balance" not in SKEW.summarize(never)


@pytest.mark.parametrize("wrong", [None, "skew", "theta"])
def test_the_page_has_all_parts_the_first_one_shown_and_fetches_nothing(wrong: str | None, tmp_path: Path) -> None:
    checks = {**EQUAL, **({wrong: Check(5, 1, 0)} if wrong else {})}
    history = History()
    runs = {"skew": make_run(4, PROMOTED), "theta": make_run(2)}
    for part in (SKEW, THETA):
        runs[part.name].id = part.name
        history.add(batch_event(0, part.name))
        history.add(part.note(runs[part.name], checks[part.name]))
    demo._write(history, tmp_path)
    events = list(HistoryReader(tmp_path).read())
    assert [(event["event"], event["query"]) for event in events] == [
        ("batch", "skew"), ("note", "skew"), ("batch", "theta"), ("note", "theta"),
    ]  # fmt: skip
    page = (tmp_path / "demo.html").read_text()
    shown = re.search(r'id="history">(.*?)</script>', page, re.DOTALL)
    assert shown is not None
    drawn = json.loads(shown[1])
    assert drawn == [*events[2:], *events[:2]], "the page shows the last run"
    notes = {event["query"]: event for event in events if event["event"] == "note"}
    assert {name: note["right"] for name, note in notes.items()} == {name: name != wrong for name in notes}
    assert [note["facts"]["checked"] for note in notes.values()] == [str(check) for check in checks.values()]
    assert notes["skew"]["facts"]["adapted"] == str(PROMOTED)
    assert LEG_WHERE in notes["theta"]["code"]
    assert notes["theta"]["facts"]["matched"].startswith("200 rows into 600 pairs in 2.0 s: 300 pairs/s")
    assert f"checked: {checks['skew']}" in html.unescape(page).partition("<noscript>")[2]
    assert not re.search(r'(src|href)="(?!#)', page)


def test_a_run_is_read_from_the_dashboard_s_events() -> None:
    run = Run("r")
    for event in run_events(3):
        run.take(event)
    assert [batch.number for batch in run.batches] == [0, 1, 2]
    first = run.batches[0]
    assert (first.rows, first.seconds, first.table) == (9, 0.5, 2)
    assert [(worker.rows, worker.results, worker.load) for worker in first.workers] == [(30, 60, 1.5), (10, 20, 0.5)]
    assert [decision.batch for decision in run.decisions] == [1]
    run.take({**batch_event(3), "sources": [{"name": "files", "rows": 0}]})
    assert len(run.batches) == 3, "a batch without rows only moves clocks"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Disorder(2_000, 16), {"lateness": "20.4 seconds learned, 3 rows were later than the lateness learned by then"}),
        (Memory(2_000, 16), {"recall": "61.2% +- 0.5% of the exact result, as estimated while it ran; the actual share is below"}),
    ],
    ids=["disorder", "memory"],
)  # fmt: skip
def test_the_other_parts_have_words_of_their_own(part: Part, told: dict[str, str]) -> None:
    batches = [replace(batch, lateness=20_400_000, recall=(0.612, 0.005)) for batch in make_batches(4)]
    run = Run("r", [replace(batches[0], recall=None), *batches[1:]], [], 2.0)
    note = check_event(part.note(run, Check(9, 1, 0, may_miss=True)), "demo")
    assert {name: note["facts"][name] for name in told} == told
    assert (note["code"], note["right"]) == (part.code, True)


def test_parts_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[list[Part]] = []
    monkeypatch.setattr(demo, "run_demo", lambda parts, *_, **__: chosen.append(parts) or 0)
    for words in ([], ["--memory"], ["--theta", "--disorder", "--seconds", "20", "--rows", "1_000"]):
        assert main(["demo", *words]) == 0
    usual, one, two = chosen
    assert usual == [Skew(1_600_000, 64), Theta(1_600_000, 64)]
    assert one == [Memory(1_600_000, 64)]
    assert one[0].code.endswith('within="10 seconds", lateness="5 seconds", memory=12_500)')
    assert two == [Disorder(1_000, 20), Theta(1_000, 20)]


def test_every_part_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    told = capsys.readouterr().out
    assert all(f"  --{name} " in told for name in ("skew", "disorder", "memory", "theta", "seconds", "dashboard"))


def test_plain_lines_show_each_batch_and_decision_once() -> None:
    screen = io.StringIO()
    display = LineDisplay(screen, origin=ORIGIN)
    display.begin(4)
    for run in (Run(), make_run(1), make_run(1), make_run(3, PROMOTED), make_run(3, PROMOTED)):
        display.show(run)
    display.begin(2)
    display.show(make_run(1, PROMOTED))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[2] == (
        "batch     3/4  100 rows  200 rows/s  900 results  load 1.50 0.50  state 2,000 rows, 64.0 kB  cpu 9 + 4 ms  "
        "clock 0:12.0  late 3"
    )
    assert lines[3] == f"adapts    {PROMOTED}"
    assert lines[4].startswith("batch     1/2  ")
    assert lines[5] == lines[3]


def test_a_terminal_is_redrawn_in_place() -> None:
    screen = io.StringIO()
    display = LiveDisplay(screen, origin=ORIGIN, color=False)
    display.begin(4)
    for run in (Run(), make_run(1), make_run(2), make_run(3, PROMOTED), make_run(4, PROMOTED)):
        display.show(run)
    drawn = screen.getvalue()
    blocks = [len(part.splitlines()) for part in drawn.split("\x1b[?7l")[1:]]
    assert blocks == [3, 7, 7, 8, 8]  # the block and what follows its last line break
    assert "\x1b[2A" in drawn
    assert drawn.count("\x1b[6A") == 2
    assert drawn.count("\x1b[7A") == 1
    assert drawn.count(f"adapts    {PROMOTED}\n") == 2
    assert "worker 1  █████████▍                    load 0.50        600 rows  19.0 kB      4 cpu ms" in drawn
    assert "worker 1  █████████████████▊            load 0.95" in drawn
    assert "\x1b[36m" not in drawn


def test_an_interrupt_stops_the_query_that_is_followed() -> None:
    class Query:
        stopped = False
        runId = "r"

        def awaitTermination(self, _: float) -> bool:
            return False

        def stop(self) -> None:
            self.stopped = True

    query, interrupted = Query(), threading.Event()
    interrupted.set()
    with pytest.raises(KeyboardInterrupt):
        follow(lambda: query, History(), lambda _: None, interrupted)
    assert query.stopped


def test_a_query_is_followed_until_its_end_is_reported() -> None:
    class Query:
        runId = "r"

        def awaitTermination(self, _: float) -> bool:
            return True

    history, seen = History(), []
    for event in (batch_event(0, "another"), *run_events(2)):
        history.add(event)
    late = threading.Timer(
        0.2, lambda: [history.add(event) for event in (batch_event(2), {"event": "ended", "query": "r", "time": 1})]
    )
    late.start()
    run = follow(Query, history, lambda run: seen.append(len(run.batches)), threading.Event())
    late.join()
    assert [batch.number for batch in run.batches] == [0, 1, 2]
    assert seen[0] == 2


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
