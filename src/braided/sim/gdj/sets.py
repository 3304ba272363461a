"""Every policy on every data set at a budget of 20% of the windows' mean rows, and the kernel's speed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from braided.eviction.policies.auto import AUTO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.policy import Policy
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.recent import RECENT
from braided.eviction.tuning.adaptive import make_buffer
from braided.sim.gdj.data import Data, events_of, synthetic, trades, weather
from braided.sim.gdj.evaluation import SHARE, Setting
from braided.sim.gdj.locality import locality
from braided.sim.gdj.measure import MORE, exact, limit, recall

PERCENTILES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99)
OF_THE_PAPER = ("GDJ, best percentile", "PROB", "AGE, learned", "FIFO", "RAND")


def data_sets(setting: Setting) -> list[Data]:
    """Return all data sets."""
    made = [
        synthetic(rows=setting.rows, domain=domain, pareto=pareto, seed=seed)
        for domain, pareto, seed in ((1000, None, 1), (1000, 0.6, 1), (100, None, 1), (100, 0.6, 1), (1000, 0.8, 2))
    ]
    if setting.where is None:
        return made
    real = [trades(setting.where), trades(setting.where, by="broker"), weather(setting.where)]
    return [*([d.first(60_000) for d in real] if setting.quick else real), *made]


def compare_sets(setting: Setting) -> list[dict[str, Any]]:
    """Return, per data set, the recall of every policy, the limit, and the ratios with a target."""
    out = []
    for data in data_sets(setting):
        capacity = data.budget(SHARE)
        setting.tell(f"{data.name}, fixed percentiles")
        fixed = {p: recall(data, GDJ(initial=p), capacity) for p in PERCENTILES}
        best = max(fixed, key=lambda p: fixed[p])
        recalls = {"GDJ, best percentile": fixed[best]}
        recalls["RECENT, long memory"] = recall(data, RECENT(memory="long"), capacity)
        for name, policy in MORE.items():
            setting.tell(f"{data.name}, {name}")
            recalls[name] = recall(data, policy, capacity)
        single = max(value for name, value in recalls.items() if name not in ("auto", "AGE", "GDJ"))
        report = locality(data.events.keys.view(np.int64))
        out.append(
            {
                "data": data.name,
                "rows": len(data.events.keys),
                "budget": capacity,
                "exact": exact(data),
                "slope": report.slope,
                "correlation": report.correlation,
                "limit": limit(data, capacity),
                "recall": recalls,
                "best_percentile": best,
                "auto_over_best_single": recalls["auto"] / single,
                "auto_over_best_of_the_paper": recalls["auto"] / max(recalls[name] for name in OF_THE_PAPER),
                "tuned_over_best_percentile": recalls["GDJ"] / fixed[best],
            }
        )
    return out


def sets_table(rows: list[dict[str, Any]]) -> str:
    """Return the comparison as Markdown: recall, and as a share of the clairvoyant's limit."""
    names = list(rows[0]["recall"])
    parts = ["## All data sets, recall (share of the limit)", ""]
    parts.append("| data | limit | " + " | ".join(names) + " |")
    parts.append("|---" * (2 + len(names)) + "|")
    for row in rows:
        cells = [f"{row['recall'][n]:.3f} ({row['recall'][n] / row['limit']:.2f})" for n in names]
        parts.append(f"| {row['data']} | {row['limit']:.3f} | " + " | ".join(cells) + " |")
    parts += [
        "",
        "| data | Zipf slope | correlation | auto / best single | auto / best of the paper | GDJ tuned / best |",
    ]
    parts.append("|---" * 6 + "|")
    for row in rows:
        ratios = [row["auto_over_best_single"], row["auto_over_best_of_the_paper"], row["tuned_over_best_percentile"]]
        cells = [f"{row['slope']:.2f}", f"{row['correlation']:.2f}", *(f"{r:.3f}" for r in ratios)]
        parts.append(f"| {row['data']} | " + " | ".join(cells) + " |")
    return "\n".join([*parts, ""])


def kernel_speed(setting: Setting) -> dict[str, Any]:
    """Return rows per second of processor time, the best of three runs.

    1,000 keys, alpha 0.75, a 20,000-row buffer, 100,000-row windows, results counted.
    """
    n = 200_000 if setting.quick else 600_000
    rng = np.random.default_rng(1)
    popularity = np.arange(1, 1001) ** -0.75
    keys = rng.choice(1000, n, p=popularity / popularity.sum())
    events = events_of(keys, np.arange(n), rng.integers(0, 2, n))
    policies: dict[str, Policy] = {"GDJ, METHOD 1": GDJ(initial=0.2), "PROB": PROB(), "RECENT": RECENT()}
    policies |= {"GDJ, tuned on line": GDJ(), "auto": AUTO()}
    speeds = {}
    for name, policy in policies.items():
        setting.tell(name)
        best = 0.0
        for _ in range(3):
            buffer = make_buffer(20_000, policy, window=(-100_000, 100_000))
            buffer.count(events.part(0, 1))
            rest = events.part(1, n)
            started = time.process_time()
            buffer.count(rest)
            best = max(best, (n - 1) / (time.process_time() - started))
        speeds[name] = round(best)
    return {"rows_a_second": speeds, "bars": {"GDJ, METHOD 1": 3_000_000, "auto": 2_000_000}}
