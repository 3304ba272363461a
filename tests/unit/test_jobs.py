"""Job files: what they say, and that what is wrong in one is said with its line and key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from braided.cli import main
from braided.cli.exits import first_line
from braided.errors import JobError
from braided.jobs.job_file import Job
from braided.jobs.job_reader import parse_job, read_job

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "jobs.md"
EXAMPLE = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)[0]
SMALL = """
name = "small"
checkpoint = "/c"
[sources.a]
path = "/a"
[[steps]]
name = "one"
sql = '''
SELECT *   # = not TOML
FROM a'''
[[steps]]
name = "two"
python = "m:f"
inputs = ["one"]
[sink]
format = "noop"
"""


def parse(text: str, **environment: str) -> Job:
    return parse_job(text, "j.toml", environment)


def test_the_example_of_the_docs_says_what_the_docs_say() -> None:
    job = parse(EXAMPLE, ALERTS_LOGIN="s3cret")
    assert (job.name, job.trigger, job.needs.cores, list(job.sources)) == ("fraud", "5 seconds", 2, ["calls", "alerts"])
    assert job.sources["alerts"].options["kafka.sasl.jaas.config"] == "s3cret"
    assert (job.sources["calls"].max_files, job.sources["alerts"].watermark) == (10, "30 seconds")
    assert [(step.name, step.inputs) for step in job.steps] == [("hits", ()), ("scored", ("hits",))]
    assert (job.sink.input, job.sink.format, job.tables["cells"].path) == ("scored", "topic", "/data/cells")
    assert job.secrets == {"s3cret"}


def test_what_is_left_out_has_a_default() -> None:
    job = parse(SMALL.split("[[steps]]", maxsplit=1)[0] + "[sink]\nformat = 'noop'\n")
    assert (job.sink.input, job.trigger, job.sources["a"].format, job.sink.mode) == ("a", None, "parquet", "append")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "small"', "", "j.toml, line 1: name: is missing"),
        ('name = "small"', 'name = "a/b"', "line 2: name: 'a/b': write letters from A to Z, digits, dots, dashes and underscores"),
        ('name = "small"', 'name = "-a"', "line 2: name: '-a': write letters from A to Z, digits, dots, dashes and underscores, a letter or digit first"),
        ('name = "small"', 'name = "ü"', "line 2: name: 'ü': write letters from A to Z"),
        ('name = "small"', 'name = "' + 81 * "a" + '"', "a letter or digit first, at most 80"),
        ('name = "small"', 'name = "small"\noperator = "' + 101 * "a" + '"', "line 3: operator: 'aaa"),
        ('name = "small"', "name = 3", "line 2: name: 3: write a string"),
        ('name = "small"', 'name = "', "j.toml: not valid TOML: "),
        ('checkpoint = "/c"', 'chekpoint = "/c"', "line 3: chekpoint: unknown key; did you mean 'checkpoint'?"),
        ('checkpoint = "/c"', 'checkpoint = "/c"\ntrigger = "soon"', "line 4: trigger: 'soon': write a duration, such as '10 seconds', or 'available now'"),
        ('checkpoint = "/c"', 'checkpoint = "/c"\nneeds = {cores = 0}', "line 4: needs.cores: 0: write a number from 1 to 4096"),
        ('checkpoint = "/c"', 'checkpoint = "/c"\nneeds = {memory = "much"}', "needs.memory: 'much': write a size with its unit, such as '2 GB'"),
        ('[sources.a]\npath = "/a"', "", "sources: a job needs a source; add a table [sources.NAME]"),
        ("[sources.a]", "[[sources]]", "line 4: sources: write a table, [sources.NAME]"),
        ("[sources.a]", "[sources.a-b]", "line 4: sources.a-b: 'a-b': write a SQL name of letters, digits and underscores"),
        ('path = "/a"', 'pth = "/a"', "line 5: sources.a.pth: unknown key; did you mean 'path'?"),
        ('path = "/a"', "", "line 4: sources.a.path: is missing; write the path of this parquet"),
        ('path = "/a"', 'path = "/a"\nmax_files = 0', "line 6: sources.a.max_files: 0: write a number of 1 or more"),
        ('path = "/a"', 'path = "/a"\nwatermark = "1 minute"', "sources.a.time: is missing; a watermark needs the event-time column"),
        ('path = "/a"', 'path = "/a"\noptions = {x = "${NOPE}"}', "sources.a.options.x: ${NOPE}: this environment variable does not exist; set it"),
        ('path = "/a"', 'path = "/a"\noptions = {x = "a${NOPE"}', "line 6: sources.a.options.x: ${ without a name and }; write ${NAME}"),
        ('path = "/a"', 'path = "/${NOPE}"', "sources.a.path: environment variables are replaced only in options"),
        ('path = "/a"', 'path = "/a"\noptions = {x = "${}"}', "sources.a.options.x: ${ without a name and }; write ${NAME}"),
        ('path = "/a"', 'path = "/a"\noptions = {x = []}', "sources.a.options.x: write a string, a number, true or false"),
        ('name = "two"', 'name = "one"', "line 12: steps.1.name: 'one': there is a source, table or earlier step 'one'; choose another name"),
        ('name = "two"', 'name = "A"', "line 12: steps.1.name: 'A': there is a source, table or earlier step 'a', which is the same name for Spark; choose another name"),
        ("[sources.a]", '[sources.A]\npath = "/b"\n[sources.a]', "line 6: sources.a: 'a': there is a source, table or earlier step 'A', which"),
        ("[sources.a]", '[tables.A]\npath = "/b"\n[sources.a]', "line 4: tables.A: 'A': there is a source, table or earlier step 'a', which"),
        ('name = "two"', f"name = {'9' * 5_000}", "not valid TOML: Exceeds the limit"),
        ('python = "m:f"', "", "line 11: steps.1: a step needs either sql = '...' or python = 'module:function'"),
        ('python = "m:f"', 'python = "m f"', "line 13: steps.1.python: 'm f': write 'module:function'"),
        ('python = "m:f"', 'python = "os:import"', "steps.1.python: 'os:import': write 'module:function'"),
        ('inputs = ["one"]', 'inputs = ["tow"]', "line 14: steps.1.inputs: 'tow': no such source or earlier step; use a, one"),
        ('inputs = ["one"]', "", "line 11: steps.1.inputs: is missing; write the streams that the function takes"),
        ('format = "noop"', "", "line 15: sink.format: is missing"),
        ('format = "noop"', 'format = "topic"', "line 15: sink.path: is missing; write the path for the results"),
        ('format = "noop"', 'format = "noop"\nmode = "all"', "line 17: sink.mode: 'all': write append, update or complete"),
        ('format = "noop"', 'format = "noop"\ninput = "x"', "line 17: sink.input: 'x': no such source or step; use a, one, two"),
        ('[sink]\nformat = "noop"', "", "sink: is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(JobError, match=re.escape(message)):
        parse(SMALL.replace(old, new))


def test_what_is_built_has_its_place() -> None:
    assert parse(SMALL).places == {
        "sources.a": "j.toml, line 4",
        "sink": "j.toml, line 15",
        "steps.0.sql": "j.toml, line 8",
        "steps.1.python": "j.toml, line 13",
    }
    assert parse(SMALL.replace('path = "/a"', 'path = "/a"\noptions = {x = "${spark.y}"}')).sources["a"].options == {
        "x": "${spark.y}"
    }


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for content, message in ((b"\xff", "not UTF-8 text (byte 0)"), (b"x" * (2 << 20), "a job file has at most")):
        (tmp_path / "j.toml").write_bytes(content)
        with pytest.raises(JobError, match=re.escape(message)):
            read_job(tmp_path / "j.toml")
    with pytest.raises(JobError, match=r"none\.toml: No such file or directory"):
        read_job(tmp_path / "none.toml")


def test_a_mark_at_the_start_of_a_file_is_skipped_and_secrets_are_hidden_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "j.toml").write_bytes(
        b"\xef\xbb\xbf" + SMALL.replace("[sink]", "[sink.options]\nx = '${S}'\n[sink]").encode()
    )
    job = read_job(tmp_path / "j.toml", {"S": "HunterTwo"})
    assert job.hide("no codec huntertwo, HunterTwo") == "no codec ***, ***"


def test_check_says_yes_or_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.toml").write_text(SMALL)
    assert main(["check", str(tmp_path / "good.toml")]) == 0
    assert "job 'small' with a; one, two; two to noop" in capsys.readouterr().out
    (tmp_path / "bad.toml").write_text(SMALL.replace("[sink]", "[sank]"))
    assert main(["check", str(tmp_path / "bad.toml")]) == 1
    assert "bad.toml, line 15: sank: unknown key; did you mean 'sink'?" in capsys.readouterr().err
    assert main(["check", "--json", str(tmp_path / "good.toml")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["accepted"], told["name"], told["sources"], told["steps"]) == (True, "small", ["a"], ["one", "two"])
    assert main(["check", "--json", str(tmp_path / "bad.toml")]) == 1
    assert "did you mean 'sink'?" in json.loads(capsys.readouterr().out)["error"]


def test_the_doctor_prints_what_a_bug_report_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BRAIDED_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert main(["doctor", "--json"]) == 1
    found = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert {"braided", "system", "python", "workers", "java", "packages", "extras", "memory", "cache"} <= found.keys()
    assert found["spark"]["todo"] == "unset SPARK_HOME, or install the pyspark of the same version"
    assert "rocksdbjni" in found["store"]["found"]
    assert f"BRAIDED_CACHE_DIR={tmp_path}" in found["settings"]["found"]


def test_the_doctor_says_what_to_type(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "!!  workers   no-such-python is not on the PATH" in out
    assert "set PYSPARK_PYTHON=" in out
    assert "ok  braided" in out


def test_the_line_of_an_error_that_says_something() -> None:
    traceback = (
        "[STREAM_FAILED] failed: Traceback (most recent call last):\n  File x\nbraided.errors.TopicError: no; mend it\n"
    )
    assert first_line(RuntimeError(traceback)) == "no; mend it"
    assert first_line(RuntimeError("\n one\ntwo")) == "one"
    assert first_line(RuntimeError()) == "RuntimeError"
    java = RuntimeError("An error occurred while calling o1.start.")
    java.java_exception = SimpleNamespace(toString=lambda: "java.lang.Exception: no such format\n\tat x")  # type: ignore[attr-defined]
    assert first_line(java) == "java.lang.Exception: no such format"
