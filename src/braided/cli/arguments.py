"""What may be typed after `braided`, and which function answers it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from braided.cli.fleet_arguments import add_fleet_commands
from braided.version import __version__

_DEMO = """\
Generates two streams, call records and suspicious numbers, and joins them live on a local Spark; one phone turns
hot and the routing adapts. Then joins calls by a predicate alone, without a key. Shows rows, results and loads while
it runs, checks both results against DuckDB, and draws what happened (demo.html).
Takes half a minute on two cores, and a minute the first time.
Needs Java 17 or later and the 'demo' extra: pip install 'braided[demo]'.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 failed, 2 cannot start, 130 stopped by Ctrl-C."""
    arguments = _parser().parse_args(argv)
    answer: Callable[[argparse.Namespace], int] = arguments.answer
    return answer(arguments)


def _answer_demo(arguments: argparse.Namespace) -> int:
    from braided.cli.demo import run_demo
    from braided.cli.streams import DemoStreams

    demo = DemoStreams(rows=arguments.rows, seconds=arguments.seconds)
    return run_demo(demo, arguments.out, color=arguments.color)


def _answer_run(arguments: argparse.Namespace) -> int:
    from braided.cli.job import run_job

    return run_job(arguments.job, once=arguments.once, as_json=arguments.json)


def _answer_check(arguments: argparse.Namespace) -> int:
    from braided.cli.job import check_job

    return check_job(arguments.job)


def _answer_explain(arguments: argparse.Namespace) -> int:
    from braided.cli.job import explain_job

    return explain_job(arguments.job)


def _answer_doctor(arguments: argparse.Namespace) -> int:
    from braided.cli.doctor import run_doctor

    return run_doctor(as_json=arguments.json, join=arguments.join)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="braided", description="Exact, fast stream joins for PySpark Structured Streaming."
    )
    parser.add_argument("--version", action="version", version=f"braided {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="join generated streams on a local Spark and check the results",
        description=_DEMO,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument(
        "--rows", type=_Count(10), default=1_600_000, metavar="N", help="rows of both streams together (%(default)s)"
    )
    demo.add_argument(
        "--seconds", type=_Count(4), default=64, metavar="S", help="event time the streams span (%(default)s)"
    )
    demo.add_argument("--out", type=Path, metavar="DIR", help="where demo.html goes (a new temporary directory)")
    demo.add_argument("--no-color", dest="color", action="store_false", help="no colours, as with NO_COLOR=1")
    demo.set_defaults(answer=_answer_demo)
    jobs = {
        "run": (_answer_run, "run a job file until it ends or Ctrl-C stops it"),
        "check": (_answer_check, "say whether a job file can be accepted, without Spark"),
        "explain": (_answer_explain, "show how a job's query would run, without starting it"),
    }
    for name, (answer, words) in jobs.items():
        command = commands.add_parser(name, help=words, description=f"{words.capitalize()}. See docs/jobs.md.")
        command.add_argument("job", type=Path, metavar="JOB.toml", help="the job file")
        command.set_defaults(answer=answer)
        if name == "run":
            command.add_argument("--once", action="store_true", help="process what is there now, then end")
            command.add_argument("--json", action="store_true", help="Spark's progress as a line of JSON a batch")
    add_fleet_commands(commands)
    doctor = commands.add_parser("doctor", help="look for what is wrong with this machine, and say what to type")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.add_argument("--join", action="store_true", help="also run a small join on a local Spark, half a minute")
    doctor.set_defaults(answer=_answer_doctor)
    return parser


class _Count:
    """An argument type: a whole number, `1_000` and `1,000` alike, that is not too small."""

    def __init__(self, least: int) -> None:
        self._least = least

    def __call__(self, text: str) -> int:
        try:
            number = int(text.replace(",", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < self._least:
            raise argparse.ArgumentTypeError(f"{text!r} is too small; write {self._least} or more")
        return number
