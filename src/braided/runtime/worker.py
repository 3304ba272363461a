"""The worker's part of a batch: check the input and the state, run the operator, and save the bookkeeping.

All workers get a summary from every router task, so all have the same stream totals and clocks, and a worker without
rows still expires its state. If a check fails, the query stops before any row leaves.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

from braided.errors import BraidedError, StateError
from braided.routing.routes import split_tags, tagged_schema
from braided.runtime.blocks import RESTORE, Blocks
from braided.runtime.bookkeeping import check_options, read_bookkeeping, write_bookkeeping, write_inputs
from braided.runtime.contract import Block, BlockFile, Json, Operator, StreamTime, Work
from braided.runtime.handover import Handover, Rescaling
from braided.runtime.router import FORMAT, PROBE, TAGGED, UNTIMED, Packet, read_header
from braided.runtime.store import Store
from braided.storage.topic_progress import read_progress
from braided.time.learning.learner import read_summary
from braided.time.propagated_delay import PropagatedDelay, append_delay
from braided.time.stream_clock import jump_of
from braided.time.trust import Cluster, merge_clusters
from braided.version import __version__


def fingerprint(options: Json) -> str:
    """Return a digest of an operator's options."""
    content = json.dumps(options, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True)
class WorkerTask:
    """One worker's task in one batch: its number, the number of workers, and the fingerprint of the operator's options.

    If `watched`, a controller needs the load in detail. If `final`, this is the last batch. `moment` is when the batch
    ran, in microseconds, the same for all workers and in every re-run; None if it is not known. If `propagated_delay`
    is set, results have a column with their delay. `control` is the location of the routing tables.
    """

    worker: int
    workers: int
    options: str
    watched: bool = False
    final: bool = False
    moment: int | None = None
    propagated_delay: PropagatedDelay | None = None
    control: str | None = None
    rescaling: Rescaling | None = None
    """The last change of the number of workers, if there was one."""


def run_worker(
    operator: Operator, task: WorkerTask, packets: Iterable[Packet], store: Store
) -> Generator[pa.RecordBatch, None, Json]:
    """Yield the results of one batch, commit the state, return the worker's report."""
    started = time.process_time()
    headers, blocks = _sort_packets(operator, packets)
    table = _check_headers(headers, task)
    bookkeeping, handover = _load_bookkeeping(store, operator, task)
    _check_table(bookkeeping, table, task.control)
    streams = _sum_streams(headers, operator)
    block_store = store.open(bookkeeping)
    stored = Blocks(block_store, task.worker, bookkeeping["blocks"])
    if handover is not None:
        bookkeeping["state"] = _adopt(operator, handover, task.worker, table, stored)
    work = Work(task.worker, blocks, streams, task.watched, task.final, task.moment)
    results = operator.process(work, bookkeeping["state"], stored)
    if task.propagated_delay is not None:
        known = bookkeeping.get("lateness")
        results = append_delay(results, None if known is None else task.propagated_delay.delay(known))
    outcome = yield from results
    counts = {
        "rows": sum(block.rows.num_rows for block in blocks),
        "cpu_ms": round(1000 * (time.process_time() - started)),
        "state_reads": stored.reads,
        "cached_reads": stored.cached,
        **outcome.counts,
    }
    bookkeeping["state"] = outcome.state
    bookkeeping["table"] = bookkeeping["table"] if table is None else table
    if task.control is not None:
        bookkeeping["control"] = [task.control, socket.gethostname()]
    if task.worker == 0 and "inputs" not in bookkeeping:
        bookkeeping["inputs"] = write_inputs(operator)
    bookkeeping["batches"] += 1
    if task.propagated_delay is not None:
        bookkeeping["lateness"] = [stream.get("spread", stream["lateness"]) for stream in outcome.streams]
    bookkeeping["counts"] = {name: bookkeeping["counts"].get(name, 0) + count for name, count in counts.items()}
    for total, stream in zip(bookkeeping["streams"], streams, strict=True):
        for name in ("rows", "null_times", "null_keys", "shed"):
            total[name] = total.get(name, 0) + getattr(stream, name)
    block_store.finish()
    store.save(write_bookkeeping(bookkeeping))
    report: Json = {
        "worker": task.worker,
        "workers": task.workers,
        "batches": bookkeeping["batches"],
        "table": bookkeeping["table"],
        "load": outcome.load,
        "last": {**counts, **outcome.levels},
        "total": {**bookkeeping["counts"], **outcome.levels},
    }
    if outcome.recall is not None:
        report["recall"] = outcome.recall
    if outcome.progress is not None:
        report["progress"] = [asdict(one) for one in outcome.progress]
    if outcome.detectors is not None:
        report["detectors"] = outcome.detectors
    if task.worker == 0:
        report["streams"] = [
            {**total, **level} for total, level in zip(bookkeeping["streams"], outcome.streams, strict=True)
        ]
        report["last_streams"] = [stream.rows for stream in streams]
        if task.moment is not None:
            report["moment"] = task.moment
    return report


def _sort_packets(operator: Operator, packets: Iterable[Packet]) -> tuple[list[tuple[int, Json]], list[Block]]:
    """Sort packets by (side, task, seq, kind), because the shuffle returns them in any order."""
    ordered = sorted(packets, key=lambda packet: (packet.side, packet.task, packet.seq, packet.kind))
    headers = [(packet.side, read_header(packet.note)) for packet in ordered if packet.note is not None]
    blocks = [_block(operator, packet, packet.block) for packet in ordered if packet.block is not None]
    return headers, blocks


def _block(operator: Operator, packet: Packet, content: pa.Buffer) -> Block:
    schema, tags = operator.inputs[packet.side], None
    if packet.kind & TAGGED:
        rows, tags = split_tags(pa.ipc.read_record_batch(content, tagged_schema(schema)))
    else:
        rows = pa.ipc.read_record_batch(content, schema)
    timed = not packet.kind & UNTIMED
    file = None if packet.path is None or tags is not None else BlockFile(rows, content, packet.path)
    return Block(packet.side, rows, packet.late, packet.copies, not packet.kind & PROBE, tags, timed, file)


def _check_headers(headers: list[tuple[int, Json]], task: WorkerTask) -> tuple[int, str] | None:
    """Check that all routers and this worker have one version and one set of options; return the table's id."""
    for _, header in headers:
        if header["version"] != __version__ or header["format"] != FORMAT:
            raise BraidedError(
                f"a router runs braided {header['version']}, but a worker runs {__version__}; "
                "install the same version on the driver and all executors"
            )
        if header["options"] != task.options or header["workers"] != task.workers:
            raise BraidedError("routers and workers of one query have different options; restart the query")
    tables = sorted({tuple(header["table"]) for _, header in headers})
    if len(tables) > 1:
        raise BraidedError(f"one batch has two routing tables, {tables}; restart the query")
    return tables[0] if tables else None


def _check_table(bookkeeping: Json, table: tuple[int, str] | None, control: str | None) -> None:
    """Raise if a table is older than the last one, or differs in the same version: it would not probe all rows."""
    if table is None or bookkeeping["table"] is None:
        return
    version, digest = bookkeeping["table"]
    if table[0] < version:
        raise StateError(
            f"the routing went back from version {version} to {table[0]}; "
            f"{_bring(bookkeeping.get('control'), control)}, or start with a new checkpoint and a new directory"
        )
    if table[0] == version and table[1] != digest:
        raise StateError(
            f"the checkpoint was written with another routing table of version {version}; restore the old values of "
            "partition= and control=, or start with a new checkpoint"
        )


def _bring(before: list[str] | None, now: str | None) -> str:
    """Return a text about the control directory that a checkpoint needs: where it was, and where it should be."""
    if before is None:
        return "set control= to the directory that belongs to the checkpoint"
    location, host = before
    where = f"the checkpoint needs the control directory {location!r} of host {host}"
    if now is None:
        return f"{where}; set control= to it, or set spark.braided.control to the folder of all control directories"
    return f"{where}; copy it to {now!r}" if now != location else f"{where}; it is missing or older: restore it"


def _load_bookkeeping(store: Store, operator: Operator, task: WorkerTask) -> tuple[Json, Handover | None]:
    """Return a worker's bookkeeping: its own, a new one, or one that begins with the state of other workers."""
    content = store.load()
    bookkeeping = None if content is None else read_bookkeeping(content)
    known = -1 if bookkeeping is None else int(bookkeeping.get("generation", -1))
    if task.rescaling is not None and known < task.rescaling.generation:
        handover = task.rescaling.read(operator.options)
        if handover.workers != task.workers:
            raise StateError(
                f"`braided rescale` changed this query to {handover.workers} workers, but it has {task.workers}, so "
                f"Spark's part of the checkpoint does not fit; {RESTORE}"
            )
        check_options(handover.records[0]["options"], operator.options)
        return {**handover.bookkeeping(task.worker, task.rescaling.batch), "options": operator.options}, handover
    if bookkeeping is None:
        fresh: Json = {
            "worker": task.worker,
            "workers": task.workers,
            "options": operator.options,
            "batches": 0,
            "counts": {},
            "table": None,
            "streams": [{"rows": 0, "null_times": 0, "null_keys": 0} for _ in operator.inputs],
            "blocks": {},
            "state": None,
        }
        return fresh, None
    if bookkeeping["workers"] != task.workers:
        raise StateError(
            f"the checkpoint was written with {bookkeeping['workers']} workers, but this query has {task.workers}; set "
            f"spark.sql.shuffle.partitions={bookkeeping['workers']} or start with a new checkpoint; if "
            "`braided rescale` was interrupted, run it again"
        )
    if bookkeeping["worker"] != task.worker:
        raise StateError(f"worker {task.worker} has the state of worker {bookkeeping['worker']}; {RESTORE}")
    check_options(bookkeeping["options"], operator.options)
    bookkeeping["options"] = operator.options
    return bookkeeping, None


def _adopt(operator: Operator, handover: Handover, worker: int, table: tuple[int, str] | None, blocks: Blocks) -> Json:
    """Return a new worker's share of the state of the old workers."""
    adopt: Callable[[Handover, int, Blocks], Json] | None = getattr(operator, "adopt", None)
    if adopt is None:
        raise StateError("the state of this operator cannot be divided again; restore the checkpoint from a copy")
    if table is not None and table != (handover.new.version, handover.new.digest):
        raise StateError(
            f"the first batch after `braided rescale` has the routing table {table[0]}, not the first one; start the "
            "query with the old values of partition= and control="
        )
    return adopt(handover, worker, blocks)


def _sum_streams(headers: list[tuple[int, Json]], operator: Operator) -> list[StreamTime]:
    streams = [StreamTime() for _ in operator.inputs]
    clusters: list[list[Cluster]] = [[] for _ in streams]
    for side, header in headers:
        stream = streams[side]
        stream.rows += header["rows"]
        stream.null_times += header["null_times"]
        stream.null_keys += header["null_keys"]
        stream.shed += header["shed"]
        if header["handed"] is not None:
            stream.propagated_delay = max(header["handed"], stream.propagated_delay or 0)
        if header["promise"] is not None:
            promise = read_progress(header["promise"])
            if stream.promise is None or promise.until > stream.promise.until:
                stream.promise = promise
        if header["top"] is not None:
            stream.top = header["top"] if stream.top is None else max(stream.top, header["top"])
        clusters[side] += [Cluster(*cluster) for cluster in header["clusters"]]
        rule = operator.lateness[side]
        if header["delays"] is not None and not isinstance(rule, int):
            stream.delays.append(read_summary(rule, header["delays"]))
    for stream, stream_clusters, lateness in zip(streams, clusters, operator.lateness, strict=True):
        stream.clusters = merge_clusters(stream_clusters, jump_of(lateness))
    return streams
