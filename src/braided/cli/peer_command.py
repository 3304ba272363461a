"""`braided peer`: one peer of a fleet, in this process, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import shlex
import shutil
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from braided.cli.exits import CANNOT_START, FAILED, first_line, refuse
from braided.cli.local_spark import find_java_problem, quiet_output
from braided.cli.spinner import waiting
from braided.durations import parse_duration
from braided.errors import BraidedError, PeerError
from braided.fleet.fleet_peer import Settings
from braided.fleet.identity import Token, new_token
from braided.fleet.messages import Contact
from braided.fleet.thresholds import Thresholds, read_levels

_SECOND = 1_000_000


def start_peer(arguments: argparse.Namespace) -> int:
    """Start a peer, print how to join it, and run until Ctrl-C or SIGTERM; return 1 if its Spark has failed."""
    problem = find_java_problem()
    if problem is not None:
        return _refuse(problem)
    folder = Path(tempfile.mkdtemp(prefix="braided-peer-"))
    log = folder / "spark.log"
    try:
        settings = Settings(
            span=parse_duration(arguments.lease, "lease") / _SECOND,
            period=parse_duration(arguments.period, "period") / _SECOND,
            thresholds=Thresholds(
                overload=arguments.overload,
                imbalance=arguments.imbalance,
                lasting=arguments.lasting,
                levels=read_levels(arguments.levels),
            ),
        )
        token = _token(arguments)
        with quiet_output(log) as screen:
            why = _live(arguments, token, settings, log, screen)
    except Exception as error:
        code = _refuse(first_line(error))
        if not isinstance(error, BraidedError):
            print(f"braided peer: Spark's log is {log}", file=sys.stderr)
            return FAILED
    else:
        if why is not None:
            print(f"{arguments.name}: {why}; Spark's log is {log}", file=sys.stderr)
            return FAILED
        code = 0
    shutil.rmtree(folder, ignore_errors=True)
    return code


def _live(arguments: argparse.Namespace, token: Token, settings: Settings, log: Path, screen: TextIO) -> str | None:
    from braided.fleet.hosting.driver_log import lines_of
    from braided.fleet.hosting.process import PeerOptions, check_peer, run_peer
    from braided.fleet.hosting.spark_master import read_master
    from braided.fleet.hosting.spark_session import peer_session
    from braided.fleet.transport import split

    # Queries that end because they move are not reported here; the fleet's events have them.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    settings_of_spark = dict(map(read_setting, arguments.conf))
    master = read_master(arguments.master or settings_of_spark.pop("spark.master", None), arguments.cores)
    master.check_driver(split(arguments.listen)[0], settings_of_spark)
    options = PeerOptions(
        name=arguments.name,
        listen=arguments.listen,
        token=token,
        cores=master.cores,
        is_local=master.is_local,
        storage=None if arguments.storage is None else str(Path(arguments.storage).absolute()),
        join=arguments.join,
        modules=arguments.allow,
        offers=arguments.offers or ("*",),
        beyond_loopback=arguments.beyond_loopback,
        log=partial(lines_of, log),
        settings=settings,
    )

    def ready(contact: Contact, storage: str) -> None:
        line = ["braided", "peer", "--name", "NAME", "--listen", "127.0.0.1:0", "--join", contact.address]
        line += ["--token-file", str(arguments.token_file.absolute())]
        print(f"{contact.name}: listening at {contact.address}, storage {storage}", file=screen)
        print(f"{contact.name}: join with {shlex.join(line)}", file=screen)
        print(f"{contact.name}: Ctrl-C moves its jobs to other peers and stops it", file=screen, flush=True)

    asyncio.run(check_peer(options))
    with waiting("starting Spark", screen):
        spark = peer_session(
            arguments.name,
            master=master,
            listen=split(arguments.listen)[0],
            memory=arguments.memory,
            scratch=log.parent / "scratch",
            settings=settings_of_spark,
        )
    try:
        with contextlib.ExitStack() as opened:
            if arguments.metrics is not None:
                import braided

                endpoint = opened.enter_context(braided.metrics(spark, port=arguments.metrics))
                print(f"{arguments.name}: metrics at {endpoint.url}", file=screen, flush=True)
                options = replace(options, watch=endpoint.follow)  # every job has a session of its own
            return asyncio.run(run_peer(spark, options, ready))
    finally:
        with contextlib.suppress(Exception):  # Spark may have ended
            spark.stop()


def read_setting(text: str) -> tuple[str, str]:
    name, is_set, value = text.partition("=")
    if not is_set or not name.startswith("spark."):
        raise PeerError(f"conf={text!r}: write a setting of Spark and its value, such as spark.jars=/opt/kafka.jar")
    return name, value


def _token(arguments: argparse.Namespace) -> Token:
    """Return the fleet's token; the first peer creates it."""
    file: Path = arguments.token_file
    if not file.exists():
        if arguments.join:
            raise PeerError(f"token-file={str(file)!r}: no such file; copy the one that the first peer has written")
        if arguments.storage is None:
            raise PeerError(
                "storage: missing; give the fleet's directory to its first peer, on storage that all peers can reach"
            )
        new_token().write(file)
    return Token.read(file)


def _refuse(why: str) -> int:
    return refuse("peer", why, CANNOT_START)
