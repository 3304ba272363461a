"""The driver of joins with a budget: it owns order, blocks, budget and report of a batch; a tactic does the joining.

```
 new rows -> ordering stage, or shed -> in order -> TACTIC: joined with the buffer -> kept or not, by the policy
                                                    pairs, combinations, or the joins of a group
```

What a policy keeps depends on the order in which it sees rows, so rows are put in order first, by (time, stream,
content). Then the result depends only on the input, the budget and the seed, not on how a stream is cut into batches.
Every result is one of the exact join, once. A result is missing if one of its rows was not stored or was evicted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.eviction.policies.policy import Policy
from braided.eviction.shed import Shed, Shedding
from braided.operators.bounded.ordered_rows import Entering, OrderedRows, OrderedStreams
from braided.routing.tally import Tally
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json, Outcome, Work
from braided.runtime.rows import Index

PAIRS_AT_ONCE = 1 << 16
"""How many pairs a buffer finds before they are turned into results."""


class Batch(NamedTuple):
    """What a tactic receives: the rows that enter, the bytes of each row by its id if they count, and the tally."""

    entering: Entering
    sizes: Index | None
    tally: Tally | None


class Tactic(Protocol):
    """How the rows that enter in one batch meet those in the buffer."""

    def run(self) -> Generator[pa.RecordBatch, None, dict[str, int]]:
        """Run the rows through the buffer, yield results in pieces, and return how many there were, by name."""

    def kept_ids(self) -> Index:
        """Return the ids of the rows in the buffer."""

    def move(self, positions: Index) -> None:
        """Take the new position of each row among the kept rows of its stream, -1 for a removed row."""

    def counts(self) -> dict[str, int]:
        """Return how many rows are in the buffer (`stored_rows`), and how many were `evicted` and `refused` so far."""

    def recall(self) -> list[list[float]]:
        """Return the sums from which recall is estimated."""

    def to_bytes(self) -> dict[str, bytes]:
        """Return `buffer` and `recall` as bytes, once all is done."""


class BoundedOperator(OrderedStreams, Protocol):
    """What an operator must provide that stores a limited number of rows per worker, of all its streams together."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the streams in reports."""

    @property
    def capacity(self) -> int:
        """Rows kept at most."""

    @property
    def most_bytes(self) -> int | None:
        """The bytes of the rows kept, if rows differ in size and the budget is in bytes; else None."""

    @property
    def policy(self) -> Policy:
        """The rule that chooses the row to evict."""

    @property
    def shed(self) -> Shed | None:
        """The share of rows that is dropped at random, or how it is computed; None: no row is."""

    @property
    def retention(self) -> Sequence[int]:
        """How long a row of each stream can match later ones."""

    @property
    def adapts(self) -> bool:
        """Whether the routing may change, so that rows keep its marks."""

    @property
    def keyed(self) -> bool:
        """Whether rows are routed by a key; else one worker has them all."""

    def hashes(self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None) -> npt.NDArray[np.uint64]:
        """Return the hash by which each row is routed."""

    def tactic(self, batch: Batch, buffer: bytes | None, recall: bytes | None) -> Tactic:
        """Return what joins the rows of a batch, with buffer and recall as `Tactic.to_bytes` returned them."""


def budget_options(operator: BoundedOperator) -> Json:
    """Return what a budget adds to the options that give stored state its meaning."""
    return {
        "memory": operator.capacity,
        "evict": repr(operator.policy),
        "shed": operator.shed,
        "bytes": operator.most_bytes,
    }


def drive(
    operator: BoundedOperator, work: Work, state: Json | None, blocks: Blocks
) -> Generator[pa.RecordBatch, None, Outcome]:
    """Put rows in order, join them with the buffer, and keep the rows that the policy keeps."""
    old: Json = state or {"rows": None, "buffer": None, "recall": None}
    shedding = None
    if operator.shed is not None:
        shedding = Shedding(operator.shed, capacity=operator.capacity, retention=operator.retention)
    ordered = OrderedRows(operator, old["rows"], blocks, marked=operator.adapts, shedding=shedding)
    entering = ordered.enter(work)
    sizes = None if operator.most_bytes is None else entering.sizes()
    tally = _tally(operator, work)
    tactic = operator.tactic(Batch(entering, sizes, tally), ordered.saved(old["buffer"]), ordered.saved(old["recall"]))
    results = yield from tactic.run()
    tactic.move(ordered.keep(tactic.kept_ids()))
    saved = {name: ordered.replace(old[name], content) for name, content in tactic.to_bytes().items()}
    stage, labels = ordered.stage, operator.labels
    return Outcome(
        {"rows": ordered.to_json(), **saved},
        counts={**results, **stage.counts(labels), **entering.dropped(sizes, operator.most_bytes)},
        levels={**tactic.counts(), **ordered.stored(saved.values()), **stage.levels(labels)},
        streams=[{"name": name, **report} for name, report in zip(labels, stage.report(), strict=True)],
        load={} if tally is None else tally.to_json(),
        recall=tactic.recall(),
    )


def _tally(operator: BoundedOperator, work: Work) -> Tally | None:
    """Count the rows of a batch for a controller, if there is one. Grids know the first stream and all others."""
    if not work.watched or not operator.keyed:
        return None
    tally = Tally()
    for block in work.blocks:
        tally.rows(min(block.side, 1), operator.hashes(block.side, block.rows, block.tags), block.tags)
    return tally
