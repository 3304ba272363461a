"""Finds passes, double passes and shots in a match: `python examples/soccer/run.py --out /tmp/soccer`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from detectors import hierarchy
from figure import delays, learned, live
from match import Truth, arriving, generate, read_match
from pictures import k_over_time, pitch

import braided

PAPER = {"player": (5, 45), "ball": (1, 2)}
WORSE = {"player": (5, 450), "ball": (1, 20)}


def detect(streams: dict[str, pa.Table], late: dict[str, tuple[int, int]]) -> braided.local.LocalResult:
    """Run the hierarchy over positions that arrive late by so many milliseconds."""
    return braided.local.detect(
        arriving(streams, late), hierarchy(), key="match", time="time", arrival="arrival", batch_rows=50_000
    )


def events(found: pa.Table, type_: str) -> list[dict[str, object]]:
    """Return the events of one type, in order of time, with their times in microseconds."""
    rows = pa.Table.from_struct_array(found.filter(pc.equal(found["type"], type_))[type_])
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    plain: list[dict[str, object]] = pa.table(columns, rows.column_names).sort_by("time").to_pylist()
    return plain


def compare(found: Sequence[tuple[int, ...]], truth: Sequence[tuple[int, ...]]) -> tuple[float, float]:
    """Return precision and recall: the same players, and times at most a fifth of a second apart."""

    def share(these: Sequence[tuple[int, ...]], those: Sequence[tuple[int, ...]]) -> float:
        near = [any(a[1:] == b[1:] and abs(a[0] - b[0]) <= 200_000 for b in those) for a in these]
        return float(np.mean(near)) if near else 1.0

    return share(found, truth), share(truth, found)


def quality(found: pa.Table, truth: Truth) -> dict[str, tuple[float, float]]:
    """Return precision and recall of passes, double passes and shots."""
    named = {
        "pass": (("time", "passer", "receiver"), truth.passes),
        "double_pass": (("time", "one", "two"), truth.double_passes),
        "shot": (("time", "player"), truth.shots),
    }
    return {
        type_: compare([tuple(int(row[name]) for name in names) for row in events(found, type_)], known)  # type: ignore[call-overload]
        for type_, (names, known) in named.items()
    }


def draw(found: pa.Table, streams: dict[str, pa.Table]) -> str:
    """Return the pitch with passes from where the ball was to where it was received, and shots."""
    ball = streams["ball"]
    times = ball["time"].cast(pa.int64()).to_numpy()
    xy = np.stack([ball["x"].to_numpy(), ball["y"].to_numpy()], axis=1)

    def at(moment: object) -> tuple[float, float]:
        x, y = xy[min(int(np.searchsorted(times, int(str(moment)))), len(xy) - 1)]
        return float(x), float(y)

    passes = [(str(row["team"]), *at(row["time"]), *at(row["received"])) for row in events(found, "pass")]
    return pitch(passes, [at(row["time"]) for row in events(found, "shot")])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it all and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", help="a recorded match: Parquet with time, object, team, x, y, z; object 200 is the ball"
    )
    parser.add_argument("--seconds", type=int, default=600, help="how long the generated match is")
    parser.add_argument("--live", type=int, default=20, help="how many seconds of a match at 200 Hz Figure 5a takes")
    parser.add_argument("--out", type=Path, default=Path("soccer"), help="where pictures go")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    truth = None
    if given.data:
        streams = read_match(given.data)
    else:
        streams, truth = generate(given.seconds)
    lasts = len(np.unique(streams["ball"]["time"].to_numpy())) / 25
    for name, late in (("the paper's delays", PAPER), ("worse delays", WORSE)):
        started = time.perf_counter()
        result = detect(streams, late)
        took = time.perf_counter() - started
        print(f"\n{name}: {lasts:.0f} s of a match in {took:.1f} s, {lasts / took:.0f} times as fast as it was played")
        print(result.report)
        if truth is not None:
            for type_, (precision, recall) in quality(result.table, truth).items():
                print(f"  {type_:<12} precision {precision:.3f}, recall {recall:.3f}")
    (given.out / "pitch.svg").write_text(draw(result.table, streams))
    figure(given.live, given.out)


def figure(seconds: int, out: Path, hz: int = 200, tick_ms: int = 10) -> None:
    """Print and draw Figure 5a: rows that K did not cover when they came, those that came too late, latency of hits."""
    streams = arriving(generate(seconds, hz=hz)[0], PAPER)
    print(f"\n{'':<22} {'rows':>9} {'K missed':>8} {'late':>8} {'mean ms':>7} {'max ms':>7} {'hits':>6}")
    curves = {}
    for margin in (0, 0.5):
        measured = live(streams, learned(margin), tick_ms)
        curves[f"K, margin {margin}"] = measured.k
        print(measured.line(f"learned, margin {margin}"))
    print(live(streams, "500 milliseconds", tick_ms).line("chosen: 500 ms"))
    (out / "figure_5a.svg").write_text(k_over_time(curves, delays(streams, 3000)))


if __name__ == "__main__":
    main()
