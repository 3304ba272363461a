"""The options of `braided peer`, and the commands and options of `braided fleet`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from braided.durations import parse_duration
from braided.errors import BraidedError

ADDRESS, TOKEN = "127.0.0.1:7401", "fleet.token"
SHORTEST = 0.5
_PEER = """\
Starts a peer of a fleet: a Spark application on this machine that runs jobs of the fleet. The first peer creates a
token file; further peers join by the address of any running peer. Ctrl-C moves its jobs to other peers and stops it.
See docs/how-to/peers.md.
"""


def add_fleet_commands(commands: Any) -> None:
    _add_peer(commands)
    fleet = commands.add_parser("fleet", help="submit jobs to a fleet of peers, and manage them")
    commands_of_fleet = fleet.add_subparsers(title="commands", metavar="COMMAND", required=True)
    submit = _command(commands_of_fleet, "submit", "submit a job file, or an application of several jobs")
    submit.add_argument(
        "job",
        type=Path,
        metavar="FILE.toml",
        help="the job (docs/how-to/jobs.md), or the application (docs/how-to/peers.md)",
    )
    submit.add_argument("--dry-run", action="store_true", help="only show which peer it would go to, and why")
    _command(commands_of_fleet, "status", "list peers and jobs")
    watch = _command(commands_of_fleet, "watch", "list peers and jobs repeatedly, until Ctrl-C")
    watch.add_argument(
        "--every",
        type=_pause,
        default=2.0,
        metavar="S",
        help=f"seconds between two lists (%(default)s), at least {SHORTEST}",
    )
    move = _command(commands_of_fleet, "move", "move a job to a peer")
    move.add_argument("component", metavar="JOB", help="the job's name")
    move.add_argument("to", metavar="PEER", help="the peer's name")
    remove = _command(commands_of_fleet, "remove", "remove a job from the fleet; its topic and its checkpoint stay")
    remove.add_argument("component", metavar="JOB", help="the job's name")
    retry = _command(commands_of_fleet, "retry", "start a failed job again, once the cause is fixed")
    retry.add_argument("component", metavar="JOB", help="the job's name")
    for name, words in (
        ("pause", "stop a job after its current batch until it is resumed; its results and its state stay"),
        ("resume", "let a paused job run again"),
        ("restart", "stop a job after its current batch and start it again, at the same peer"),
        ("logs", "print the last lines that the driver of a job has logged about it"),
    ):
        _command(commands_of_fleet, name, words).add_argument("component", metavar="JOB", help="the job's name")
    drain = _command(commands_of_fleet, "drain", "let a peer move its jobs to other peers and accept no more")
    drain.add_argument("to", metavar="PEER", help="the peer's name")
    undrain = _command(commands_of_fleet, "undrain", "let a drained peer accept jobs again")
    undrain.add_argument("to", metavar="PEER", help="the peer's name")
    events = _command(commands_of_fleet, "events", "list the last hundred events of the fleet")
    events.add_argument("--follow", action="store_true", help="continue with new events, one line each, until Ctrl-C")
    events.add_argument("--since", type=_span, metavar="T", help="all events of the last T, such as '2 hours'")
    events.add_argument("--job", default="", metavar="JOB", help="only events of this job")
    metrics = _command(commands_of_fleet, "metrics", "serve the metrics of the fleet for Prometheus, until Ctrl-C")
    metrics.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (%(default)s); other addresses require a token"
    )
    metrics.add_argument("--port", type=_port, default=9465, metavar="N", help="0 chooses a free port (%(default)s)")
    metrics.add_argument("--token", metavar="TEXT", help="the bearer token of a scrape (a new one)")
    metrics.set_defaults(answer=_answer_metrics)


def _pause(text: str) -> float:
    """Return the seconds between two requests; each goes to all peers."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of seconds, at least {SHORTEST}")
    return seconds


def _span(text: str) -> float:
    """Return the seconds of a duration."""
    try:
        seconds = parse_duration(text, "since") / 1_000_000
    except BraidedError:
        seconds = 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: write a duration, such as '2 hours'")
    return seconds


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r}: write a port from 0 to 65535")
    return int(text)


def _add_peer(commands: Any) -> None:
    peer = commands.add_parser(
        "peer",
        help="start a peer of a fleet",
        description=_PEER,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    peer.add_argument("--name", required=True, help="the name of this peer, unique in the fleet")
    peer.add_argument(
        "--listen", default=ADDRESS, metavar="HOST:PORT", help="the address at which others reach it (%(default)s)"
    )
    peer.add_argument("--storage", metavar="DIR", help="the fleet's directory, on storage that all peers can reach")
    peer.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master, for its executors: local[n] (the default), spark://HOST:PORT, yarn, k8s://...",
    )
    peer.add_argument("--cores", type=int, metavar="N", help="cores that it may use, or requests from a cluster (1)")
    peer.add_argument("--memory", default="1g", metavar="SIZE", help="memory of Spark's driver (%(default)s)")
    peer.add_argument("--join", action="append", default=[], metavar="HOST:PORT", help="a running peer of the fleet")
    add_token_file(peer)
    peer.add_argument(
        "--allow", action="append", default=[], metavar="MODULE", help="a module whose functions steps may call"
    )
    peer.add_argument(
        "--offers", action="append", metavar="NAME", help="operators that it runs, such as 'join.*' (all)"
    )
    peer.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, such as 'spark.jars=/opt/kafka.jar'",
    )
    peer.add_argument(
        "--lease", default="30 seconds", metavar="T", help="time after which a dead peer is replaced (%(default)s)"
    )
    peer.add_argument(
        "--period", default="5 seconds", metavar="T", help="time between two measurements of the load (%(default)s)"
    )
    peer.add_argument(
        "--overload",
        type=float,
        metavar="H",
        help="load above which a peer is hot; 1 is all its cores (1.2 x the mean)",
    )
    peer.add_argument(
        "--imbalance", type=float, metavar="L", help="the least difference of loads for a move (a fifth of the mean)"
    )
    peer.add_argument(
        "--lasting",
        type=int,
        default=5,
        metavar="T",
        help="the number of periods over which a load must last: 1, 5 or 15 (%(default)s)",
    )
    peer.add_argument(
        "--levels", metavar="N[,O[,TOP]]", help="equal load levels, their overlap, and the top (six that grow by half)"
    )
    peer.add_argument("--beyond-loopback", action="store_true", help="listen where other machines can reach it")
    peer.add_argument(
        "--metrics", type=_port, metavar="PORT", help="metrics of its jobs for Prometheus, on this machine only"
    )
    peer.set_defaults(answer=_answer_peer)


def _command(commands_of_fleet: Any, name: str, words: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands_of_fleet.add_parser(
        name, help=words, description=f"{words[0].upper()}{words[1:]}."
    )
    command.add_argument(
        "--peer",
        default=os.environ.get("BRAIDED_PEER", ADDRESS),
        metavar="HOST:PORT",
        help="any peer of the fleet (BRAIDED_PEER, else %(default)s)",
    )
    add_token_file(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(answer=_answer_fleet, command=name)
    return command


def add_token_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--token-file",
        type=Path,
        default=Path(os.environ.get("BRAIDED_TOKEN_FILE", TOKEN)),
        metavar="FILE",
        help="the fleet's secret (BRAIDED_TOKEN_FILE, else %(default)s)",
    )


def _answer_peer(arguments: argparse.Namespace) -> int:
    from braided.cli.peer_command import start_peer

    return start_peer(arguments)


def _answer_fleet(arguments: argparse.Namespace) -> int:
    from braided.cli.fleet import ask_fleet

    return ask_fleet(arguments)


def _answer_metrics(arguments: argparse.Namespace) -> int:
    from braided.cli.fleet_metrics import serve_fleet_metrics

    return serve_fleet_metrics(arguments)
