"""What two joins find with one budget: all rows compete, shares by average credits, or each join has half.

    python benchmarks/shared_memory.py             seconds; docs/papers/gdj.md quotes it
    python benchmarks/shared_memory.py --quick     tries everything; its figures mean nothing

GDJ, METHOD 1, percentile 0.2; a window of a tenth of the rows, and a budget of 20% of the window. Recall is over the
results of both joins. One JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.eviction.group_buffer import GroupBuffer, GroupEvents, GroupWindow
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.shared_buffer import SharedBuffer

GDJ_RULES = GDJ(initial=0.2)
Keys = npt.NDArray[np.uint64]


def zipf(random: np.random.Generator, rows: int, keys: int, alpha: float) -> Keys:
    share = np.arange(1, keys + 1) ** -alpha
    return random.choice(keys, rows, p=share / share.sum()).astype(np.uint64)


def apart(random: np.random.Generator, keys: list[Keys]) -> tuple[GroupEvents, list[GroupWindow]]:
    """Two joins of four streams."""
    rows = len(keys[0])
    stream = random.integers(0, 4, rows)
    roles = np.full((rows, 2), -1, np.int8)
    roles[stream < 2, 0], roles[stream > 1, 1] = stream[stream < 2], stream[stream > 1] - 2
    return _events(random, keys, roles, stream), [GroupWindow(0, 1, *_window(rows)), GroupWindow(2, 3, *_window(rows))]


def together(random: np.random.Generator, keys: list[Keys]) -> tuple[GroupEvents, list[GroupWindow]]:
    """Two joins of the same two streams."""
    rows = len(keys[0])
    stream = random.integers(0, 2, rows)
    roles = np.stack([stream, stream], axis=1).astype(np.int8)
    return _events(random, keys, roles, stream), [GroupWindow(0, 1, *_window(rows))] * 2


def star(random: np.random.Generator, keys: list[Keys]) -> tuple[GroupEvents, list[GroupWindow]]:
    """A stream with two others, the second of which has keys of its own."""
    rows = len(keys[0])
    stream = random.integers(0, 3, rows)
    roles = np.full((rows, 2), -1, np.int8)
    roles[stream == 0] = 0
    roles[stream == 1, 0] = roles[stream == 2, 1] = 1
    both = [keys[0], np.where(stream == 2, keys[1], keys[0])]
    return _events(random, both, roles, stream), [GroupWindow(0, 1, *_window(rows)), GroupWindow(0, 2, *_window(rows))]


def _events(
    random: np.random.Generator, keys: list[Keys], roles: npt.NDArray[np.int8], stream: npt.NDArray[np.int64]
) -> GroupEvents:
    times = np.arange(len(stream))
    contents = random.integers(0, 1 << 62, len(stream)).astype(np.uint64)
    return GroupEvents(np.stack(keys, axis=1), roles, times, stream.astype(np.int8), contents, times)


def _window(rows: int) -> tuple[int, int]:
    return -rows // 10, rows // 10


def found(buffer: GroupBuffer | SharedBuffer, events: GroupEvents) -> list[int]:
    """Return the results of each join."""
    outputs = {"pair_event": np.int64, "pair_join": np.int8, "pair_row": np.int64}
    room: dict[str, Any] = {name: np.empty(1 << 14, kind) for name, kind in outputs.items()}
    at, counts = 0, np.zeros(2, np.int64)
    while at < len(events.times):
        at, pairs = buffer.step(events, at, **room)
        counts += np.bincount(room["pair_join"][:pairs], minlength=2)
    return counts.tolist()  # type: ignore[no-any-return]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    rows = 3_000 if parser.parse_args().quick else 60_000
    middle = rows // 2
    random = np.random.default_rng(1)

    def keys(*each: tuple[int, float]) -> list[Keys]:
        return [zipf(random, rows, *one) for one in each]

    often, rarely = [zipf(random, middle, 200, 0.8) for _ in (0, 1)], [zipf(random, middle, 5_000, 0.2) for _ in (0, 1)]
    swapped = [np.concatenate([often[0], rarely[0]]), np.concatenate([rarely[1], often[1]])]
    cases = {
        "the same streams, Zipf 1.0 and 0.5": together(random, keys((500, 1.0), (500, 0.5))),
        "a stream with two others": star(random, keys((500, 0.8), (500, 0.0))),
        "200 and 2,000 keys, Zipf 0.8": apart(random, keys((200, 0.8), (2_000, 0.8))),
        "Zipf 1.2 and 0.2": apart(random, keys((500, 1.2), (500, 0.2))),
        "Zipf 0.5 both": apart(random, keys((500, 0.5), (500, 0.5))),
        "keys swapped half way": apart(random, swapped),
    }
    report: dict[str, Any] = {}
    for name, (events, joins) in cases.items():
        capacity, streams = rows // 50, int(events.streams.max()) + 1
        exact = sum(found(GroupBuffer(rows // 10 + 2, FIFO(), streams=streams, joins=joins), events))
        shared = SharedBuffer(capacity, GDJ_RULES, streams=streams, joins=joins)
        recall = {
            "unified": found(GroupBuffer(capacity, GDJ_RULES, streams=streams, joins=joins), events),
            "credits": found(shared, events),
            "fifo": found(GroupBuffer(capacity, FIFO(), streams=streams, joins=joins), events),
        }
        halves = [GroupBuffer(capacity // 2, GDJ_RULES, streams=streams, joins=joins) for _ in joins]
        recall["evenly"] = [found(half, _only(events, number))[number] for number, half in enumerate(halves)]
        report[name] = {way: round(sum(counts) / exact, 3) for way, counts in recall.items()}
        report[name]["share of the first"] = round(shared.shares[0], 2)
        print(f"{name}: {report[name]}", file=sys.stderr)
    print(json.dumps({"benchmark": "shared_memory", "rows": rows, "recall": report}))
    return 0


def _only(events: GroupEvents, join: int) -> GroupEvents:
    """Return the events of one join."""
    roles = np.full_like(events.roles, -1)
    roles[:, join] = events.roles[:, join]
    mine = roles[:, join] >= 0
    return GroupEvents(*(column[mine] for column in events._replace(roles=roles)))


if __name__ == "__main__":
    sys.exit(main())
