"""What the demo says at the end of a part, as lines and as bars."""

from __future__ import annotations

from braided.cli.batches import Run, median_rate, share_of_rows
from braided.cli.display import bar, format_bytes
from braided.cli.streams import DemoStreams

_BAR = 20


def summarize_calls(run: Run) -> dict[str, str]:
    """Return the lines that close a join of calls: rates and state."""
    batches = run.batches
    peak = max(batches, key=lambda batch: batch.stored_rows)
    return {
        "joined": f"{run.rows:,} rows into {run.results:,} in {run.elapsed:.1f} s: "
        f"{run.rows / run.elapsed:,.0f} rows/s, {median_rate(batches):,.0f} in the median batch",
        "state": f"at most {peak.stored_rows:,} rows, {format_bytes(peak.stored_bytes)}; "
        f"at the end {batches[-1].stored_rows:,} rows",
    }


def summarize_routing(demo: DemoStreams, run: Run) -> dict[str, str]:
    """Return the lines about the hot phone and what the routing made of it."""
    hot = f"one phone makes {demo.hot_share:.0%} of the calls from {demo.hot_from} s on"
    compared = run.before_and_after()
    if run.promotion is None or compared is None:
        return {"hot key": f"{hot}; the streams ended before the routing could adapt"}
    before, after = compared
    edge = demo.hot_from // demo.batch_seconds
    calm = max(share_of_rows(run.batches[:edge]), default=1 / len(before.workers))
    return {
        "hot key": f"{hot}: its worker takes {max(share_of_rows([before])):.0%} of the rows, {calm:.0%} before",
        "adapted": str(run.promotion),
        "balance": f"largest load over mean {before.imbalance:.2f} in batch {before.number + 1}, "
        f"{after.imbalance:.2f} in batch {after.number + 1}",
    }


def summarize_legs(run: Run) -> dict[str, str]:
    """Return the line that closes the theta join."""
    return {
        "matched": f"{run.rows:,} rows into {run.results:,} pairs in {run.elapsed:.1f} s: "
        f"{run.results / run.elapsed:,.0f} pairs/s, {median_rate(run.batches):,.0f} rows/s in the median batch"
    }


def draw_loads(run: Run) -> dict[str, str]:
    """Return a pair of bars per worker: its load before the promotion and in the last batch, on one scale."""
    compared = run.before_and_after()
    if compared is None:
        return {}
    most = max(batch.imbalance for batch in compared)
    heads = (f"before: batch {compared[0].number + 1}", f"after: batch {compared[1].number + 1}")
    lines = {"load": f"{heads[0]:<{_BAR + 8}}{heads[1]}"}
    for number, pair in enumerate(zip(*(batch.workers for batch in compared), strict=True)):
        bars = [f"{bar(worker.load / most, _BAR)} {worker.load:.2f}" for worker in pair]
        lines[f"worker {number}"] = "   ".join(bars)
    return lines
