"""The parts of a peer on Spark that need no Spark: the gate, CPU of process trees, job files as components."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.fleet_model import ModelHost

from braided.cli.peer_command import read_setting
from braided.errors import JobError, PeerError
from braided.fleet.agent_machine import RealMachine
from braided.fleet.checkpoints import CheckpointFolder, Checkpoints
from braided.fleet.component_host import Job
from braided.fleet.definition import component_of, job_of, modules_of
from braided.fleet.hosting import meter, process
from braided.fleet.hosting.component import Component, Progress
from braided.fleet.hosting.cpu import tree_seconds
from braided.fleet.hosting.gate import Gate
from braided.fleet.hosting.job_environment import JobEnvironment
from braided.fleet.hosting.process import PeerOptions, run_peer
from braided.fleet.hosting.spark_master import read_master
from braided.fleet.identity import new_token
from braided.fleet.json_records import MAX_TEXT
from braided.fleet.leases import Position

JOB = """
name = "hits"
checkpoint = "/data/c"
trigger = "1 second"
[sources.calls]
format = "topic"
path = "/data/calls"
[sources.other]
format = "kafka"
options = { login = "${LOGIN}" }
[[steps]]
name = "hits"
sql = "SELECT * FROM calls"
options = { control = "/data/control", lateness = "5 seconds" }
[sink]
format = "topic"
path = "/data/hits"
"""


def test_a_peer_that_is_ready_lets_spark_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Warmed(ModelHost):
        died: Callable[[str], None]

        def warm_up(self, storage: str) -> None:
            assert storage == str(tmp_path)
            self.died(f"warm after {seen}")

        def close(self) -> None:
            seen.append("closed")

    seen: list[str] = []
    monkeypatch.setattr(process, "_host", lambda spark, options: Warmed(RealMachine(lambda *_: None), lambda: 0))  # type: ignore[arg-type,return-value]
    options = PeerOptions(name="a", listen="127.0.0.1:0", token=new_token(), cores=1, storage=str(tmp_path))

    async def work() -> str | None:
        async with asyncio.timeout(30):
            return await run_peer(None, options, lambda contact, storage: seen.append("ready"))  # type: ignore[arg-type]

    assert asyncio.run(work()) == "warm after ['ready']"
    assert seen == ["ready", "closed"]


def test_a_closed_gate_lets_no_batch_in_and_waits_for_the_one_inside() -> None:
    gate, inside, go_on = Gate(), threading.Event(), threading.Event()

    def batch() -> None:
        with gate.batch(7):
            inside.set()
            go_on.wait(10)

    thread = threading.Thread(target=batch)
    thread.start()
    inside.wait(10)
    assert not gate.close(0.0)
    assert gate.last is None
    go_on.set()
    assert gate.close(10.0)
    assert gate.last == 7
    with pytest.raises(PeerError, match="batch 8 was not run here: the query is about to stop"), gate.batch(8):
        pytest.fail("the gate is closed")
    thread.join()


def test_a_batch_that_fails_does_not_count_as_out() -> None:
    gate = Gate()
    with pytest.raises(ZeroDivisionError), gate.batch(3):
        _ = 1 / 0
    assert gate.last is None
    assert gate.close()


def _process(proc: Path, pid: int, parent: int, times: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 0 0 0 0 0 0 0 0 0 {times} 0 0")


def test_cpu_is_that_of_the_whole_tree_and_of_children_that_have_ended(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    _process(tmp_path, 10, 1, f"{ticks} 0 0 {ticks}")
    _process(tmp_path, 11, 10, f"0 {2 * ticks} 0 0")
    _process(tmp_path, 12, 11, f"{4 * ticks} 0 {8 * ticks} 0")
    _process(tmp_path, 13, 1, f"{100 * ticks} 0 0 0")
    (tmp_path / "meminfo").write_text("")
    assert tree_seconds(10, tmp_path) == 16
    with pytest.raises(PeerError, match="process 99: is not in"):
        tree_seconds(99, tmp_path)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_cpu_of_a_child_counts_while_it_runs_and_after() -> None:
    """In a process of its own: other tests' children that end take their CPU with them."""
    code = """
import os, subprocess, sys
from braided.fleet.hosting.cpu import tree_seconds

before = tree_seconds(os.getpid())
busy = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True)\\ninput()"
with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    print(tree_seconds(os.getpid()) - before)
print(tree_seconds(os.getpid()) - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(float(line) >= 0.25 for line in done.stdout.split())
    assert len(done.stdout.split()) == 2


def test_a_job_file_becomes_a_component_without_its_secrets(tmp_path: Path) -> None:
    component = component_of(JOB, "hits.toml")
    assert (component.name, component.operator) == ("hits", "sql")
    assert component.inputs == ("/data/calls",)
    assert component.outputs == ("/data/hits",)
    assert "${LOGIN}" in component.definition
    job = job_of(component, str(tmp_path), {"LOGIN": "secret"})
    assert job.checkpoint == str(tmp_path)
    assert job.steps[0].options == {"control": True, "lateness": "5 seconds"}
    assert job.sources["other"].options == {"login": "secret"}
    assert job.hide("a SECRET word") == "a *** word"
    with pytest.raises(JobError, match="LOGIN"):
        job_of(component, str(tmp_path), {})


def test_the_operator_is_what_the_file_says_or_what_it_needs() -> None:
    assert component_of(f'operator = "join.window.phone"\n{JOB}', "x").operator == "join.window.phone"
    python = JOB.replace('sql = "SELECT * FROM calls"', 'python = "fraud.scores:score"\ninputs = ["calls"]')
    python = python.replace("options = { control", "# options = { control")
    component = component_of(python, "x")
    assert component.operator == "python.fraud.scores"
    assert modules_of(job_of(component, "/c", {"LOGIN": ""})) == ["fraud.scores"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"/data/calls"', '"calls"', "hits.toml: calls.path='calls': write an absolute path"),
        ('"/data/c"', '"c"', "hits.toml: checkpoint='c': write an absolute path"),
        ('"/data/hits"', '"hits"', "hits.toml: sink.path='hits': write an absolute path"),
        ('"1 second"', '"available now"', "trigger='available now': jobs of a fleet run continuously"),
        (
            '"hits"\ncheckpoint',
            '"hits"\noperator = "a..b"\ncheckpoint',
            "line 3: operator: 'a..b': write parts with dots",
        ),
        ("SELECT *", "SELECT " + "x" * MAX_TEXT, "write a job file of at most 32768"),
    ],
)
def test_what_a_fleet_cannot_run_is_refused(old: str, new: str, message: str) -> None:
    assert old in JOB
    with pytest.raises((PeerError, JobError), match=message):
        component_of(JOB.replace(old, new), "hits.toml")


def _spark_batch(folder: Path, batch: int, *, committed: bool = True) -> None:
    for log, text in (("offsets", f'v1\n{{"clock":{batch}}}\n{{"slot":{batch}}}'), ("commits", "v1\n{}")):
        if log == "offsets" or committed:
            (folder / log).mkdir(exist_ok=True)
            (folder / log / str(batch)).write_text(text)
            (folder / log / f".{batch}.crc").write_text("")
    pins = folder / "braided" / "control" / "hits" / "pins"
    pins.mkdir(parents=True, exist_ok=True)
    (pins / f"{batch}.json").write_text("{}")


def test_a_position_is_the_last_committed_batch_and_its_input(tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path))
    assert folder.position() == Position()
    _spark_batch(tmp_path, 3)
    here = folder.position()
    _spark_batch(tmp_path, 4, committed=False)
    assert folder.position() == here
    assert here.batch == 3
    assert not folder.is_committed(4)
    _spark_batch(tmp_path, 4)
    assert folder.is_committed(4)
    assert folder.position() not in (here, Position(4, here.offsets))


def test_a_rehearsal_goes_back_by_a_batch_and_forgets_what_came_after(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    with checkpoints.rehearsal() as empty:
        assert empty.go_back() is None
    first = checkpoints.open(0)
    owner, decisions = Path(first.location), "braided/control/hits/decisions.jsonl"
    for batch in (8, 9, 10):
        _spark_batch(owner, batch, committed=batch < 10)
    (owner / decisions).write_text("{}\n")
    with checkpoints.rehearsal() as rehearsal:
        clone = Path(rehearsal.location)
        assert rehearsal.go_back() == 9
        assert sorted(path.name for path in (clone / "commits").iterdir()) == [".8.crc", "8"]
        assert sorted(path.name for path in (clone / "offsets").iterdir()) == [".8.crc", ".9.crc", "8", "9"]
        assert sorted(path.name for path in (clone / "braided/control/hits/pins").iterdir()) == ["8.json", "9.json"]
        with (owner / decisions).open("a") as log:
            log.write("{}\n")
        assert (clone / decisions).read_text() == "{}\n"
    assert first.position().batch == 9
    assert (owner / "offsets" / "10").exists()


def test_old_checkpoints_go_also_where_batches_leave_by_a_sink_of_sparks_own(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    for epoch in range(4):
        checkpoints.open(epoch)
    setting = JobEnvironment(None, cores=1, modules=(), environment={})  # type: ignore[arg-type]
    component: Any = Component(setting, Job("rows", "sql", checkpoint=str(tmp_path)), 3)
    written = {"braided.written": {"rows": 30}}
    last = SimpleNamespace(batchId=19, durationMs={"triggerExecution": 500}, sources=[], observedMetrics=written)
    component._query = SimpleNamespace(lastProgress=last, status={"isTriggerActive": True})
    component._job = SimpleNamespace(trigger=None, sources={})
    component._tasks = SimpleNamespace(since_last=lambda: 0.25)
    assert component.progress() == Progress(19, 0.5, None, 0, 0.25, rows=30)
    assert checkpoints.epochs() == [0, 1, 2, 3]
    last.batchId = 20
    component.progress()
    assert checkpoints.epochs() == [2, 3]


def test_a_checkpoint_of_a_query_outside_of_a_fleet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(PeerError, match="belongs to a query that ran outside of a fleet; give a new one"):
        Checkpoints(str(tmp_path))


def test_a_setting_of_spark_has_a_name_and_a_value() -> None:
    assert read_setting("spark.jars=/a.jar,/b=c.jar") == ("spark.jars", "/a.jar,/b=c.jar")
    for text in ("spark.jars", "jars=/a.jar"):
        with pytest.raises(PeerError, match=f"conf='{text}': write a setting of Spark and its value"):
            read_setting(text)


def test_the_gate_does_not_wait_for_ever() -> None:
    gate = Gate()
    begun = time.monotonic()
    with gate.batch(0):
        assert not gate.close(0.05)
    assert time.monotonic() - begun < 5


def test_a_peer_runs_only_what_it_may_and_can(tmp_path: Path) -> None:
    session: Any = None
    setting = JobEnvironment(session, cores=2, modules=("fraud", "osx"), environment={"LOGIN": ""})
    python = JOB.replace('sql = "SELECT * FROM calls"', 'python = "os.path:join"\ninputs = ["calls"]')
    python = python.replace("options = { control", "# options = { control")
    assert setting.job(component_of(python.replace("os.path", "fraud.scores"), "x"), str(tmp_path)).steps
    setting.check(component_of(python.replace("os.path", "fraud.scores"), "x"))
    for refuse in (lambda job: setting.job(job, str(tmp_path)), setting.check):
        with pytest.raises(PeerError, match=r"python='os.path': this peer may not run it; start it with --allow os.p"):
            refuse(component_of(python, "x"))
    with pytest.raises(PeerError, match="python='fraudulent': this peer may not run it"):
        setting.job(component_of(python.replace("os.path", "fraudulent"), "x"), str(tmp_path))
    with pytest.raises(PeerError, match=r"needs.cores=3: this peer has 2 cores"):
        setting.job(component_of(JOB + "[needs]\ncores = 3\n", "x"), str(tmp_path))


class _Query:
    """A component as the meter sees it."""

    def __init__(self, name: str) -> None:
        self.component = Job(name, "sql", outputs=(f"/{name}",))
        self.rows = 0
        self.last: Progress | None = None

    def progress(self) -> Progress | None:
        return self.last


def test_a_driver_is_where_its_executors_reach_it() -> None:
    here = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    assert read_master("local[2]", 2).settings("10.1.2.3") == here
    there = {"spark.driver.host": "10.1.2.3", "spark.driver.bindAddress": "10.1.2.3"}
    assert read_master("spark://a:7077", 4).settings("10.1.2.3") == {"spark.cores.max": "4", **there}
    assert read_master("yarn", None).settings("10.1.2.3") == there
    assert [read_master(url, None).cores for url in ("local", "local[3]", "local[3, 2]", "yarn")] == [1, 3, 3, 1]


@pytest.mark.parametrize(
    ("url", "listen", "settings", "is_refused"),
    [
        ("spark://far:7077", "127.0.0.1", {}, True),
        ("spark://127.0.0.1:7077,far:7077", "localhost", {}, True),
        ("yarn", "::1", {}, True),
        ("k8s://https://far:443", "127.0.0.1", {}, True),
        ("spark://far:7077", "10.1.2.3", {}, False),
        ("spark://far:7077", "127.0.0.1", {"spark.driver.host": "127.0.0.1"}, False),
        ("spark://127.0.0.1:7077", "127.0.0.1", {}, False),
        ("local-cluster[2,1,1024]", "127.0.0.1", {}, False),
        ("local[2]", "127.0.0.1", {}, False),
    ],
)
def test_a_driver_that_executors_cannot_reach_is_refused(
    url: str, listen: str, settings: dict[str, str], is_refused: bool
) -> None:
    master = read_master(url, 2)
    if not is_refused:
        master.check_driver(listen, settings)
        return
    with pytest.raises(PeerError) as error:
        master.check_driver(listen, settings)
    assert str(error.value) == (
        f"listen={listen!r}: executors of {url} cannot reach the driver there; listen at an address of this machine, "
        f"with --beyond-loopback, or give --conf spark.driver.host={listen} if they are all on this machine"
    )


def test_the_load_of_executors_elsewhere_is_the_time_of_their_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(meter.time, "monotonic", lambda: now)
    monkeypatch.setattr(meter, "tree_seconds", lambda pid: 10.0)
    measuring = meter.Meter(1.0, 5.0, is_local=False)
    job: Any = _Query("job")
    measuring.look([job])
    measuring.cores = 4.0
    job.last = Progress(0, 4.0, 2.0, 7, 15.0)
    now = 105.0
    measuring.look([job])
    now = 110.0
    measured = measuring.measured()
    assert measured.load == 15.0 / 10 / 4
    assert [part.load for part in measured.components] == [measured.load]


def test_components_share_the_cpu_by_the_time_that_their_tasks_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = 100.0, 10.0
    monkeypatch.setattr(meter.time, "monotonic", lambda: now)
    monkeypatch.setattr(meter, "tree_seconds", lambda pid: used)
    measuring = meter.Meter(2.0, 5.0)
    large, small = _Query("large"), _Query("small")
    queries: Any = [large, small]
    measuring.look(queries)
    now, used = 105.0, 18.0
    assert measuring.measured().load == 0.8
    assert [part.load for part in measuring.measured().components] == [0.0, 0.0]
    large.last, small.last, large.rows = Progress(0, 4.0, 2.0, 7, 1.5), Progress(4, 4.0, None, 0, 0.5), 50
    measuring.look(queries)
    now, used = 110.0, 22.0
    first = measuring.measured()
    assert first.load == 0.4
    assert [round(part.load, 6) for part in first.components] == [0.3, 0.1]
    assert [(part.busy, part.backlog, part.rate) for part in first.components] == [(2.0, 7, 5.0), (0.05, 0, 0.0)]
    now = 112.0
    assert measuring.measured() is first  # asked for again too soon
    now, used = 115.0, 22.0
    assert [part.load for part in measuring.measured().components] == [0.0, 0.0]
    now, used = 140.0, 32.0
    large.last, small.last = Progress(3, 3.0, 2.0, 0, 9.0), Progress(4, 4.0, None, 0, 0.0)
    measuring.look(queries)
    parts = measuring.measured().components
    assert [round(part.load, 6) for part in parts] == [0.2, 0.0]  # the other one has been idle for long
    measuring.look(queries[1:])
    now = 150.0
    assert [part.name for part in measuring.measured().components] == ["small"]


def test_a_batch_that_takes_longer_than_the_one_before_counts_before_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = used = 0.0
    monkeypatch.setattr(meter.time, "monotonic", lambda: now)
    monkeypatch.setattr(meter, "tree_seconds", lambda pid: used)
    measuring = meter.Meter(1.0, 5.0)
    calm, rising = _Query("calm"), _Query("rising")
    queries: Any = [calm, rising]

    def after(seconds: float, cpu: float, calm_tasks: float, rising_tasks: float, batch: int = 1) -> list[float]:
        nonlocal now, used
        now, used = now + seconds, used + cpu
        calm.last, rising.last = Progress(1, 3.0, 10.0, 0, calm_tasks), Progress(batch, 1.0, 10.0, 0, rising_tasks)
        measuring.look(queries)
        return [round(part.load, 6) for part in measuring.measured().components]

    measuring.look(queries)
    assert after(10, 4.0, 3.0, 1.0) == [0.3, 0.1]
    assert after(5, 4.0, 0.0, 4.0) == [0.6, 0.2]  # too soon to tell: batches came ten seconds apart
    assert after(5, 5.0, 0.0, 5.0) == [0.25, 0.75]
    assert after(10, 10.0, 0.0, 10.0) == [0.0, 1.0]  # the other one has had nothing to do since
    assert after(5, 5.0, 0.0, 5.0, batch=2) == [0.0, 1.0]
    assert after(5, 0.5, 0.0, 0.0, batch=2) == [0.0, 0.1]
    assert after(10, 1.0, 0.0, 0.0, batch=2) == [0.0, 0.0]
