"""The commands and options of `braided`, and the function that answers each command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from braided.cli.exits import CANNOT_START, FAILED, STOPPED, refuse
from braided.cli.fleet_arguments import add_fleet_commands, add_token_file
from braided.version import __version__

Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"

_DEMO = """\
Generates two streams, call records and suspicious numbers, and joins them live on a local Spark. Each of --skew,
--disorder, --memory and --theta runs a separate join; without any of them, --skew and --theta run. Shows rows, results
and loads while it runs, checks every result against DuckDB, and writes a report page (demo.html).
Takes about a minute on two cores, and longer the first time.
Needs Java 17 or later and the 'demo' extra: pip install 'braided[demo]'.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: see `cli/exits.py`."""
    _Parser.as_json = "--json" in (sys.argv if argv is None else argv)
    arguments = make_parser().parse_args(argv)
    answer: Callable[[argparse.Namespace], int] = arguments.answer
    try:
        code = answer(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("braided: stopped", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:  # the reader has closed the pipe, as in `braided report DIR | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _answer_demo(arguments: argparse.Namespace) -> int:
    from braided.cli.demo import run_demo
    from braided.cli.demo_parts import PARTS, USUAL

    chosen = [name for name in PARTS if getattr(arguments, name)] or USUAL
    parts = [PARTS[name](arguments.rows, arguments.seconds) for name in chosen]
    return run_demo(parts, arguments.out, color=arguments.color, dashboard=arguments.dashboard)


def _answer_run(arguments: argparse.Namespace) -> int:
    from braided.cli.job_commands import Watching, run_job

    watching = Watching(arguments.dashboard, arguments.history, arguments.redact, arguments.metrics)
    return run_job(arguments.job, once=arguments.once, as_json=arguments.json, watching=watching)


def _answer_check(arguments: argparse.Namespace) -> int:
    from braided.cli.job_commands import check_job

    return check_job(arguments.job, as_json=arguments.json)


def _answer_explain(arguments: argparse.Namespace) -> int:
    from braided.cli.job_commands import explain_job

    return explain_job(arguments.job, as_json=arguments.json, svg=arguments.svg)


def _answer_dash(arguments: argparse.Namespace) -> int:
    from braided.cli.history_commands import FleetPlace, serve_page

    fleet = None if arguments.fleet is None else FleetPlace(arguments.fleet, arguments.token_file)
    place = {"host": arguments.host, "port": arguments.port, "token": arguments.token}
    return serve_page(arguments.history, fleet, **place)


def _answer_report(arguments: argparse.Namespace) -> int:
    from braided.cli.history_commands import report_history

    return report_history(arguments.history, as_json=arguments.json, html=arguments.html)


def _answer_state(arguments: argparse.Namespace) -> int:
    from braided.cli.state_commands import show_state

    return show_state(
        arguments.checkpoint,
        operator=arguments.operator,
        rows=arguments.rows,
        keys=arguments.keys,
        as_json=arguments.json,
        redact=arguments.redact,
    )


def _answer_rescale(arguments: argparse.Namespace) -> int:
    from braided.cli.state_commands import rescale_checkpoint

    return rescale_checkpoint(arguments.checkpoint, arguments.workers)


def _answer_completion(arguments: argparse.Namespace) -> int:
    from braided.cli.completion import write_script

    print(write_script(make_parser(), arguments.shell))
    return 0


def _answer_doctor(arguments: argparse.Namespace) -> int:
    from braided.cli.doctor import run_doctor

    return run_doctor(as_json=arguments.json, join=arguments.join)


def _answer_papers(arguments: argparse.Namespace) -> int:
    from braided.cli.papers_command import make_papers

    return make_papers(arguments.only, arguments.out, quick=arguments.quick, data=arguments.data)


class _Parser(argparse.ArgumentParser):
    """Reports wrong arguments in the common form of errors."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        command = self.prog.removeprefix("braided").strip() or "help"
        sys.exit(refuse(command, message, CANNOT_START, as_json=self.as_json))


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="braided", description="Exact, fast stream joins for PySpark Structured Streaming.")
    parser.add_argument("--version", action="version", version=f"braided {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="join generated streams on a local Spark and check the results",
        description=_DEMO,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shown = {
        "--skew": "one phone becomes hot, and the routing adapts while the join runs",
        "--disorder": "rows come up to 20 seconds late, without a lateness option, and the join learns it",
        "--memory": "a budget of a fifth of the window: which share of the result is found, estimated and actual",
        "--theta": "a join by a predicate only, without a key",
    }
    for name, words in shown.items():
        demo.add_argument(name, action="store_true", help=words)
    demo.add_argument(
        "--rows", type=_Count(10), default=1_600_000, metavar="N", help="rows of both streams together (%(default)s)"
    )
    demo.add_argument(
        "--seconds", type=_Count(4), default=64, metavar="S", help="event time that the streams span (%(default)s)"
    )
    demo.add_argument(
        "--out", type=Path, metavar="DIR", help="directory for demo.html and its history (a new temporary directory)"
    )
    demo.add_argument("--dashboard", action="store_true", help="also a live page; it stays open until Ctrl-C")
    demo.add_argument("--no-color", dest="color", action="store_false", help="no colours, as with NO_COLOR=1")
    demo.set_defaults(answer=_answer_demo)
    jobs = {
        "run": (_answer_run, "run a job file until it ends or Ctrl-C stops it"),
        "check": (_answer_check, "check whether a job file or an application can be accepted, without Spark"),
        "explain": (_answer_explain, "show how a job's query would run, without starting it"),
    }
    for name, (answer, words) in jobs.items():
        command = commands.add_parser(
            name, help=words, description=f"{words[0].upper()}{words[1:]}. See docs/how-to/jobs.md."
        )
        command.add_argument("job", type=Path, metavar="JOB.toml", help="the job file")
        command.set_defaults(answer=answer)
        if name == "check":
            command.add_argument("--json", action="store_true", help="as JSON")
        if name == "explain":
            command.add_argument("--json", action="store_true", help="print JSON: the operators, each with its inputs")
            command.add_argument("--svg", type=Path, metavar="FILE", help="also draw it into this file")
        if name == "run":
            command.add_argument("--once", action="store_true", help="process the available input, then end")
            command.add_argument(
                "--json", action="store_true", help="print Spark's progress as one line of JSON per batch"
            )
            command.add_argument("--dashboard", action="store_true", help="also a live page, on this machine only")
            command.add_argument(
                "--history",
                type=Path,
                metavar="DIR",
                help="append the query's events to DIR, for braided report and dash",
            )
            command.add_argument(
                "--redact", action="store_true", help="leave values of keys out of the page and the history"
            )
            command.add_argument(
                "--metrics", type=_Count(0), metavar="PORT", help="metrics for Prometheus, on this machine only"
            )
    _add_watching(commands)
    _add_checkpoints(commands)
    add_fleet_commands(commands)
    papers = commands.add_parser(
        "papers",
        help="reproduce figures of the papers, with this package's policies in a simulated cluster",
        description="Draw figures of the papers as SVG, with their data as JSON. See docs/papers/papers.md.",
    )
    every = ("ssp", "streamcloud", "gdj", "ebs", "synergy", "ablations")
    papers.add_argument("--only", choices=every, help="only this paper; ablations are for all papers")
    papers.add_argument("--quick", action="store_true", help="shorter runs, a few minutes in total; rough curves")
    papers.add_argument(
        "--out", type=Path, default=Path("papers"), metavar="DIR", help="output directory (%(default)s)"
    )
    papers.add_argument("--data", type=Path, metavar="DIR", help="real streams for the figures of gdj (synthetic ones)")
    papers.set_defaults(answer=_answer_papers)
    doctor = commands.add_parser("doctor", help="check this machine for problems, and show how to fix them")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.add_argument("--join", action="store_true", help="also run a small join on a local Spark, in half a minute")
    doctor.set_defaults(answer=_answer_doctor)
    return parser


def _add_watching(commands: Commands) -> None:
    dash = commands.add_parser(
        "dash",
        help="a live page of a query that runs with --history, of a fleet, or both",
        description="Serve the page of a history, of a fleet, or of both, until Ctrl-C.",
    )
    report = commands.add_parser(
        "report",
        help="the report of a query that ran, or is running, with --history",
        description="Write a report of a history, or of the control directory of an adaptive join.",
    )
    for command, answer in ((dash, _answer_dash), (report, _answer_report)):
        optional = "?" if command is dash else None
        command.add_argument(
            "history", type=Path, nargs=optional, metavar="DIR", help="a directory with a history, or its file"
        )
        command.set_defaults(answer=answer)
    dash.add_argument("--fleet", metavar="HOST:PORT", help="also show the fleet of this peer")
    add_token_file(dash)
    dash.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (%(default)s); other addresses require a token"
    )
    dash.add_argument("--port", type=_Count(0), default=0, metavar="N", help="0 chooses a free port (%(default)s)")
    dash.add_argument("--token", metavar="TEXT", help="the page's token (a new one)")
    report.add_argument("--json", action="store_true", help="as JSON")
    report.add_argument("--html", type=Path, metavar="FILE", help="write one HTML file with plots")
    completion = commands.add_parser(
        "completion",
        help="print a script that completes these commands in a shell",
        description="For bash: braided completion bash > ~/.local/share/bash-completion/completions/braided",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(answer=_answer_completion)


def _add_checkpoints(commands: Commands) -> None:
    state = commands.add_parser(
        "state",
        help="show the state of a query: rows, times, heaviest keys, files",
        description="Read the state of a query from its checkpoint, with a local Spark, and change nothing there.",
    )
    state.add_argument("checkpoint", metavar="PATH", help="the checkpoint of a running or stopped query")
    state.add_argument("--operator", metavar="NAME", help="only this operator, by its name or number")
    state.add_argument("--rows", type=_Count(1), metavar="N", help="also show N rows of every input")
    state.add_argument(
        "--keys",
        type=_Count(0),
        default=5,
        metavar="N",
        help="also show N of the heaviest keys (%(default)s); 0 reads no rows",
    )
    state.add_argument("--redact", action="store_true", help="show only hashes of keys, not their values")
    state.add_argument("--json", action="store_true", help="as JSON")
    state.set_defaults(answer=_answer_state)
    rescale = commands.add_parser(
        "rescale",
        help="change the number of workers of a stopped query",
        description="Redistribute the state of a stopped query to another number of workers. Needs Spark 4.2 or later: "
        "docs/how-to/restart.md.",
    )
    rescale.add_argument("checkpoint", metavar="PATH", help="the checkpoint of a stopped query; copy it first")
    rescale.add_argument("--workers", type=_Count(1), required=True, metavar="N", help="the new number of workers")
    rescale.set_defaults(answer=_answer_rescale)


class _Count:
    """An argument type: a whole number of at least `least`, written as `1000`, `1_000` or `1,000`."""

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
