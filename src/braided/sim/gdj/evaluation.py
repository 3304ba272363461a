"""The figures of the GreedyDual-Join paper's evaluation, 3 to 10, each a function from data sets to a `Figure`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.sim.figure import Figure, Panel
from braided.sim.gdj.data import Data, dealt_trades, synthetic, trades, two_joins, weather
from braided.sim.gdj.measure import (
    POLICIES,
    combinations,
    distortion,
    limit,
    recall,
    results_by_key,
    shed,
)

SHARE = 0.2


@dataclass(frozen=True)
class Setting:
    """The folder of the real data, if there is one, and how much to compute."""

    where: Path | None
    quick: bool
    tell: Callable[[str], None]

    @property
    def rows(self) -> int:
        """The number of rows of a synthetic stream."""
        return 40_000 if self.quick else 200_000

    def some(self, values: list[float]) -> list[float]:
        """Return all values, or every third one from the first on."""
        return values[::3] if self.quick else values

    def sets(self) -> list[Data]:
        """Return the data sets of most figures: the paper's three kinds."""
        made = [synthetic(rows=self.rows, domain=100, pareto=0.6)]
        if self.where is None:
            return [*made, synthetic(rows=self.rows, domain=1000)]
        real = [trades(self.where), weather(self.where)]
        return [*([d.first(60_000) for d in real] if self.quick else real), *made]


def tuning(setting: Setting) -> Figure:
    """Figure 3: METHODs 1 to 3 on the first data set, and the initial credit on each."""
    credits = setting.some([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99])
    sets = setting.sets()
    one = sets[0].first(20_000 if setting.quick else 100_000)
    methods = {}
    for number in (1, 2, 3):
        setting.tell(f"METHOD {number}")
        methods[f"METHOD {number}"] = [recall(one, GDJ.method(number, initial=p), one.budget(SHARE)) for p in credits]
    by_set = {}
    for data in sets:
        setting.tell(data.name)
        by_set[data.name] = [recall(data, GDJ(initial=p), data.budget(SHARE)) for p in credits]
    label = "initial credit, percentile from the smallest"
    return Figure(
        "3",
        "3_tuning",
        "tuning GDJ",
        [
            Panel(f"rules, {one.name}", label, "recall", credits, methods),
            Panel("initial credit, METHOD 1", label, "recall", credits, by_set),
        ],
        ["METHODs 1 and 3 differ by the same decrement for all rows, so with a percentile they keep the same rows."],
    )


def buffer_size(setting: Setting) -> Figure:
    """Figure 4: recall by the budget as a share of the windows' mean rows, with the limit of the clairvoyant policy."""
    shares = setting.some([0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0])
    panels = []
    for data in setting.sets():
        series = {}
        for name, policy in POLICIES.items():
            setting.tell(f"{data.name}, {name}")
            series[name] = [recall(data, policy, data.budget(share)) for share in shares]
        series["limit"] = [limit(data, data.budget(share)) for share in shares]
        panels.append(Panel(data.name, "budget / rows in the windows", "recall", shares, series))
    return Figure("4", "4_buffer_size", "buffer size", panels, ["AGE knows each row's best age from the future."])


def window_size(setting: Setting) -> Figure:
    """Figure 5, left: recall by the window, at a budget of 20% of each."""
    factors = setting.some([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
    panels = []
    for data in setting.sets():
        series: dict[str, list[float]] = {name: [] for name in POLICIES}
        unit = data.within / (3600e6 if data.within > 3600e6 else 60e6)
        for factor in factors:
            setting.tell(f"{data.name}, window x {factor:g}")
            scaled = replace(data, within=round(data.within * factor))
            for name, policy in POLICIES.items():
                series[name].append(recall(scaled, policy, scaled.budget(SHARE)))
        label = "window, hours" if data.within > 3600e6 else "window, minutes"
        panels.append(Panel(data.name, label, "recall", [f * unit for f in factors], series, log_x=True))
    return Figure("5a", "5_window_size", "window size", panels)


def domain_size(setting: Setting) -> Figure:
    """Figure 5, right: recall by the number of keys, synthetic streams."""
    domains = setting.some([50, 100, 300, 1000, 3000, 10_000])
    panels = []
    for pareto in (None, 0.6):
        series: dict[str, list[float]] = {name: [] for name in POLICIES}
        for domain in domains:
            setting.tell(f"{domain:,.0f} keys, Pareto {pareto}")
            data = synthetic(rows=setting.rows, domain=int(domain), pareto=pareto)
            for name, policy in POLICIES.items():
                series[name].append(recall(data, policy, data.budget(SHARE)))
        title = "no correlation" if pareto is None else f"Pareto {pareto:g}"
        panels.append(Panel(f"Zipf 0.75, {title}", "keys", "recall", domains, series, log_x=True))
    return Figure("5b", "5_domain_size", "domain size", panels)


def unified(setting: Setting) -> Figure:
    """Figure 6: two joins, one of streams with the same popular keys, one of streams with different ones."""
    panels = []
    for pareto in (None, 0.6):
        data = two_joins(rows=setting.rows, pareto=pareto)
        capacity = data.budget(SHARE)
        series: dict[str, list[float]] = {"proportional": [], "unified": []}
        names = ["RAND", "PROB", "GDJ", "RECENT"]
        for name in names:
            setting.tell(f"{name}, Pareto {pareto}")
            series["proportional"].append(recall(data, POLICIES[name], capacity, "proportional"))
            series["unified"].append(recall(data, POLICIES[name], capacity))
        title = "no correlation" if pareto is None else f"Pareto {pareto:g}"
        panels.append(Panel(f"two joins, {title}", "policy", "recall of both", names, series))
    return Figure("6", "6_unified", "unified buffers", panels)


def several_streams(setting: Setting) -> Figure:
    """Figure 7, left: one join of 2 to 5 streams, whose results are combinations of one row of each."""
    numbers = [2.0, 3.0, 4.0] if setting.quick else [2.0, 3.0, 4.0, 5.0]
    names = ["GDJ", "PROB", "FIFO", "RAND", "RECENT"]
    series: dict[str, list[float]] = {name: [] for name in names}
    kind = "trades by symbol" if setting.where else "Zipf 0.75, 1,000 keys"
    for n in numbers:
        if setting.where:
            data = dealt_trades(setting.where, streams=int(n)).first(20_000 if setting.quick else 100_000)
        else:
            data = synthetic(rows=setting.rows // 4, domain=1000, pareto=0.6, streams=int(n))
        whole = combinations(data, FIFO(), len(data.events.keys))
        for name in names:
            setting.tell(f"{n:g} streams, {name}")
            series[name].append(combinations(data, POLICIES[name], data.budget(SHARE)) / max(1, whole))
    panel = Panel(f"{kind}, dealt onto streams", "streams", "recall", numbers, series)
    note = "GDJ's credit rises with every combination that a row is part of."
    return Figure("7a", "7_streams", "several streams", [panel], [note])


def skewness(setting: Setting) -> Figure:
    """Figure 8, on one attribute: recall by the skew of popularity."""
    alphas = setting.some([0.1, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5])
    names = ["GDJ", "PROB", "FIFO", "RECENT"]
    panels = []
    for pareto in (None, 0.8):
        series: dict[str, list[float]] = {name: [] for name in names}
        for alpha in alphas:
            setting.tell(f"alpha {alpha:g}, Pareto {pareto}")
            data = synthetic(rows=setting.rows // 2, domain=1000, alpha=alpha, pareto=pareto)
            for name in names:
                series[name].append(recall(data, POLICIES[name], data.budget(SHARE)))
        title = "no correlation" if pareto is None else f"Pareto {pareto:g}"
        panels.append(Panel(f"1,000 keys, {title}", "alpha", "recall", alphas, series))
    note = "Here the one attribute of both streams varies; the paper varies a second one, figure 8b."
    return Figure("8a", "8_skewness", "skewness", panels, [note])


def sampling(setting: Setting) -> Figure:
    """Figures 9 and 10: rows dropped at random before the buffer; results, and how distorted their keys are."""
    drops = setting.some([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    names = ["GDJ", "PROB", "FIFO", "RECENT"]
    panels = []
    for data in setting.sets()[:2]:
        codes = np.zeros(int(data.events.rows.max()) + 1, np.int64)
        codes[data.events.rows] = np.unique(data.events.keys, return_inverse=True)[1]
        wanted = results_by_key(data.events, FIFO(), len(data.events.keys), data.window, codes)
        found: dict[str, list[list[float]]] = {name: [[], [], []] for name in names}
        for name in names:
            setting.tell(f"{data.name}, {name}")
            for share in drops:
                kept = shed(data.events, share, seed=5)
                made = results_by_key(kept, POLICIES[name], data.budget(SHARE), data.window, codes)
                for column, value in zip(
                    found[name], (made.sum() / wanted.sum(), *distortion(made, wanted)), strict=True
                ):
                    column.append(float(value))
        for i, what in enumerate(("recall", "SSE", "KL distance, nats")):
            series = {name: columns[i] for name, columns in found.items()}
            panels.append(Panel(data.name, "share of rows dropped", what, drops, series))
    return Figure("9 and 10", "9_sampling", "sampling: results and their distortion", panels)


FIGURES: dict[str, Callable[[Setting], Figure]] = {
    "3": tuning,
    "4": buffer_size,
    "5a": window_size,
    "5b": domain_size,
    "6": unified,
    "7a": several_streams,
    "8a": skewness,
    "9": sampling,
}
