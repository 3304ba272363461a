"""A run of the demo as plain JSON, from which its page and docs/demo.svg are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import braided
from braided.cli.batches import Run
from braided.cli.oracle import Check
from braided.cli.parts import Part
from braided.cli.streams import LATENESS, WITHIN, WORKERS, DemoStreams, Streams
from braided.runtime.contract import Json


@dataclass(frozen=True)
class Done:
    """A part that has run, and whether its result was right."""

    part: Part
    run: Run
    check: Check


def describe_run(parts: Mapping[str, Done]) -> Json:
    """Return the parts of a demo as plain JSON, enough to draw them again."""
    import pyspark

    return {
        "versions": {"braided": braided.__version__, "pyspark": pyspark.__version__},
        "join": {"within": WITHIN, "lateness": LATENESS, "workers": WORKERS},
        "right": all(done.check.right for done in parts.values()),
        "parts": {name: _describe_part(done.part, done.run, done.check) for name, done in parts.items()},
    }


def _describe_part(part: Part, run: Run, check: Check) -> Json:
    streams, compared = part.streams, run.before_and_after()
    return {
        "title": part.title,
        "says": part.says,
        "code": part.code,
        "charts": list(part.charts),
        "plan": {
            "rows": streams.rows,
            "seconds": streams.seconds,
            "batch_seconds": streams.batch_seconds,
            **_hot_phone(streams),
        },
        "summary": {**part.summarize(run), "checked": str(check)},
        "right": check.right,
        "elapsed": round(run.elapsed, 3),
        "batches": [batch.to_dict() for batch in run.batches],
        "decisions": [{**asdict(decision), "text": str(decision)} for decision in run.decisions],
        "compared": None if compared is None else [run.batches.index(batch) for batch in compared],
    }


def _hot_phone(streams: Streams) -> Json:
    if not isinstance(streams, DemoStreams) or not streams.hot_share:
        return {}
    return {"hot_from": streams.hot_from, "hot_share": streams.hot_share}
