"""Each mechanism switched off, and the share of the result that is left: simulated throughput, recall of buffers."""

from __future__ import annotations

from dataclasses import replace

from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.recent import RECENT
from braided.plan.shares import shares_of
from braided.sim.figure import Figure, Panel
from braided.sim.gdj.data import synthetic, two_joins
from braided.sim.gdj.evaluation import SHARE
from braided.sim.gdj.measure import recall
from braided.sim.papers import Reproduction, Tell
from braided.sim.ssp import Setup, simulate
from braided.sim.strategies import Query, lay_out, stage_costs


def ablations(quick: bool, tell: Tell) -> list[Reproduction]:
    """Return the result without each mechanism, as a share of the result with it."""
    setup = Setup(seconds=300.0 if quick else 2000.0, turn=100.0 if quick else 500.0, comparison=7.0)
    rows = 40_000 if quick else 200_000
    left: dict[str, float] = {}

    tell("routing")
    done = {way: simulate(setup, way, 5).throughput for way in ("static", "ssp", "grid")}
    left["controller, partition=ssp"] = done["static"] / done["ssp"]
    left["weights by CPU"] = simulate(replace(setup, weights=False), "ssp", 5).throughput / done["ssp"]
    wide = replace(setup, comparison=50.0, turn=None)
    tell("grids")
    left["grids (SSP instead)"] = simulate(wide, "ssp", 100).throughput / simulate(wide, "grid", 100).throughput

    tell("strategies")
    query = Query()
    whole = lay_out("subquery", 30, query)
    left["subqueries (operators)"] = lay_out("operator", 30, query).rows / whole.rows
    costs = {stage.name: stage.work + stage.topic for stage in stage_costs("subquery", query)}
    even = shares_of(list(costs), 30, {})
    measured = min(whole.processors[name] / cost for name, cost in costs.items())
    left["processors by cost"] = min(even[name] / cost for name, cost in costs.items()) / measured

    tell("buffers")
    bursts = synthetic(rows=rows, domain=100, pareto=0.6)
    budget = bursts.budget(SHARE)
    best = recall(bursts, GDJ(), budget)
    left["credits (FIFO)"] = recall(bursts, FIFO(), budget) / best
    left["tuned initial credit (0.9)"] = recall(bursts, GDJ(initial=0.9), budget) / best
    left["fading counts (PROB)"] = recall(bursts, PROB(), budget) / recall(bursts, RECENT(), budget)
    both = two_joins(rows=rows, pareto=0.6)
    room = both.budget(SHARE)
    left["one buffer (proportional)"] = recall(both, GDJ(), room, "proportional") / recall(both, GDJ(), room)

    values = [round(value, 3) for value in left.values()]
    verdicts = tuple(f"without {name}: {value:.2f} of the result with it" for name, value in left.items())
    title = "Each mechanism switched off"
    names = [str(number + 1) for number in range(len(left))]
    panel = Panel(title, "mechanism, in the order of the list", "share that is left", names, {"without it": values})
    figure = Figure("A", "ablations", title, [panel], verdicts)
    parameters = {
        "servers_per_join": 5, "comparison": setup.comparison, "seconds": setup.seconds, "turn": setup.turn,
        "processors": 30, "rows": rows, "budget_share": SHARE, "mechanisms": list(left),
    }  # fmt: skip
    differences = ("of no paper: the mechanisms are those of all",)
    return [Reproduction(figure, parameters, differences, verdicts)]
