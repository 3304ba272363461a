"""GDJ's Figures 2.1 to 10 for `braided papers`: the figures of `sim/gdj/`, each with verdicts from its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from braided.errors import OptionError
from braided.sim.figure import Figure, Panel
from braided.sim.gdj.attributes import several_attributes, two_attributes
from braided.sim.gdj.evaluation import FIGURES, SHARE, Setting
from braided.sim.gdj.popularity import best_age_shares, best_ages, distances, hit_rates, localities, popularity
from braided.sim.papers import Maker, Reproduction, Tell

Verdicts = Callable[[Figure, Setting], tuple[str, ...]]
_FILES = (
    "trades_2024-07-16.parquet",
    "trades_2024-07-17.parquet",
    "weather_2021_q1.parquet",
    "weather_2022_q1.parquet",
)
_SYNTHETIC = (
    "synthetic data alone: the paper's tapes cannot be had, and --data names no folder with "
    "trades_*.parquet (such as github.com/robinnarsinghranabhat/nepse-floorsheet-daily-scrape) and weather_*.parquet "
    "(such as github.com/jeffmcfadden/weather_data)"
)
_REAL = "trades are two days of another stock exchange, weather two years of one station: the paper's cannot be had"
_DIFFERENCES = (
    "GDJ is METHOD 1 with its initial credit tuned while running, where no percentile is given",
    "AGE knows each row's best age from the future, as in the paper",
    "RECENT and auto are ours; `limit` is what a policy that knows the future could find at most",
)


def gdj_makers(data: Path | None) -> list[Maker]:
    """Return the makers of all figures; `data` is a folder with real streams, None for synthetic ones."""
    missing = [name for name in _FILES if data is not None and not (data / name).exists()]
    if missing:
        raise OptionError(f"data={str(data)!r}: has no {missing[0]}; give a folder with {', '.join(_FILES)}")
    makers: dict[str, tuple[Callable[[Setting], Figure], Verdicts]] = {
        "2.1a": (popularity, _of_popularity), "2.1b": (distances, _of_distances), "2": (best_ages, _of_ages),
        "3": (FIGURES["3"], _of_tuning), "4": (FIGURES["4"], _of_sizes), "5a": (FIGURES["5a"], _of_windows),
        "5b": (FIGURES["5b"], _of_domains), "6": (FIGURES["6"], _of_unified), "7a": (FIGURES["7a"], _of_streams),
        "7b": (several_attributes, _of_attributes), "8a": (FIGURES["8a"], _of_skew), "8b": (two_attributes, _of_planes),
        "9": (FIGURES["9"], _of_sampling),
    }  # fmt: skip
    return [partial(_make, data, make, verdicts) for make, verdicts in makers.values()]


def _make(
    data: Path | None, make: Callable[[Setting], Figure], judge: Verdicts, quick: bool, tell: Tell
) -> list[Reproduction]:
    setting = Setting(data, quick, tell)
    figure = make(setting)
    verdicts = judge(figure, setting)
    notes = (*figure.notes, *verdicts)
    figure = replace(
        figure, slug=f"gdj_{figure.slug}", panels=[_rounded(panel) for panel in figure.panels], notes=notes
    )
    parameters = {
        "data": "synthetic" if data is None else "two days of trades, two years of weather, synthetic",
        "rows_of_a_synthetic_stream": setting.rows, "budget_share": SHARE,
    }  # fmt: skip
    return [Reproduction(figure, parameters, (_SYNTHETIC if data is None else _REAL, *_DIFFERENCES), verdicts)]


def _rounded(panel: Panel) -> Panel:
    return replace(panel, series={name: [round(float(v), 6) for v in values] for name, values in panel.series.items()})


def _of_popularity(figure: Figure, setting: Setting) -> tuple[str, ...]:
    slopes = {name: report.slope for name, report in localities(setting).items()}
    told = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
    skewed = all(slope > 0.3 for slope in slopes.values())
    return (f"popularity is Zipf-like: {'met' if skewed else 'refuted'}, slopes {told}; the paper's tape has 0.71",)


def _of_distances(figure: Figure, setting: Setting) -> tuple[str, ...]:
    out = []
    for name, report in localities(setting).items():
        trace, permuted = hit_rates(report, 0.1)
        word = "met" if trace > 1.1 * permuted else "refuted"
        out.append(
            f"{name}: short-term correlation is a significant source of locality: {word}, a cache for a tenth of the "
            f"keys hits {trace:.2f} of the trace and {permuted:.2f} of its permutation (the paper: about twice as much)"
        )
    return tuple(out)


def _of_ages(figure: Figure, setting: Setting) -> tuple[str, ...]:
    out = []
    for data in setting.sets():
        shares = best_age_shares(data)
        low, middle, high = np.quantile(shares, [0.1, 0.5, 0.9])
        word = "met" if np.std(shares) > 0.15 else "refuted"
        out.append(
            f"{data.name}: one k_opt does not fit all keys: {word}, a tenth of {len(shares)} keys is below {low:.2f} "
            f"of the window, half below {middle:.2f}, a tenth above {high:.2f}"
        )
    return tuple(out)


def _of_tuning(figure: Figure, setting: Setting) -> tuple[str, ...]:
    methods, by_set = figure.panels[0].series, figure.panels[1]
    best = [max(methods[f"METHOD {number}"]) for number in (1, 2, 3)]
    same = list(methods["METHOD 1"]) == list(methods["METHOD 3"])
    tops = ", ".join(f"{name} {by_set.x[int(np.argmax(values))]}" for name, values in by_set.series.items())
    return (
        f"METHOD 1 is as good as METHOD 2: {_word(best[0] / best[1])}, {best[0] / best[1]:.3f} of it",
        f"METHOD 3 {'equals METHOD 1 to the row' if same else f'finds {best[2] / best[0]:.3f} of METHOD 1'}",
        "best initial credits, percentiles from the smallest: " + tops + "; the paper's 0.84 to 0.998 are read as "
        "counted from the largest",
    )


def _word(ratio: float) -> str:
    return "beaten" if ratio > 1.01 else "met" if ratio > 0.98 else "refuted"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _beats(panels: Sequence[Panel], first: str, second: str) -> tuple[str, ...]:
    out = []
    for panel in panels:
        wins = sum(a > b for a, b in zip(panel.series[first], panel.series[second], strict=True))
        total = len(panel.series[first])
        word = "met" if wins == total else "refuted" if not wins else "partly met"
        ratio = _mean(panel.series[first]) / max(1e-12, _mean(panel.series[second]))
        out.append(f"{panel.title}: {first} above {second}: {word}, {wins} of {total} points, {ratio:.2f} on average")
    return tuple(out)


def _of_sizes(figure: Figure, setting: Setting) -> tuple[str, ...]:
    return (*_beats(figure.panels, "GDJ", "PROB"), *_beats(figure.panels, "GDJ", "AGE"), *_ours(figure.panels))


def _ours(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Compare RECENT, ours, with the best of the paper's policies that do not know the future, point by point."""
    names = [name for name in ("GDJ", "PROB", "FIFO", "RAND") if name in panels[0].series]
    ratios = [
        panel.series["RECENT"][at] / max(panel.series[name][at] for name in names)
        for panel in panels for at in range(len(panel.x))
    ]  # fmt: skip
    return (f"RECENT is {min(ratios):.2f} to {max(ratios):.2f} of the best of the paper's {', '.join(names)}",)


def _of_windows(figure: Figure, setting: Setting) -> tuple[str, ...]:
    stable = 0
    for panel in figure.panels:
        orders = {
            tuple(sorted(("GDJ", "PROB", "RAND"), key=lambda name: -panel.series[name][at]))
            for at in range(len(panel.x))
        }  # fmt: skip
        stable += len(orders) == 1
    word = "met" if stable == len(figure.panels) else "partly met" if stable else "refuted"
    return (
        f"the order of GDJ, PROB and RAND does not depend on the window: {word}, on {stable} of {len(figure.panels)} "
        "data sets", *_beats(figure.panels, "GDJ", "PROB"), *_ours(figure.panels),
    )  # fmt: skip


def _of_domains(figure: Figure, setting: Setting) -> tuple[str, ...]:
    out = []
    for panel in figure.panels:
        first, last = panel.series["GDJ"][0], panel.series["GDJ"][-1]
        word = "met" if last < first else "refuted"
        out.append(f"{panel.title}: recall falls with more keys: {word}, GDJ {first:.2f} to {last:.2f}")
    return (*out, *_beats(figure.panels, "GDJ", "PROB"), *_ours(figure.panels))


def _of_unified(figure: Figure, setting: Setting) -> tuple[str, ...]:
    out = []
    for panel in figure.panels:
        at = {name: place for place, name in enumerate(panel.x)}
        series = panel.series
        ratio = series["unified"][at["GDJ"]] / series["proportional"][at["PROB"]]
        out.append(f"{panel.title}: GDJ unified above PROB proportional: {_word(ratio)}, {ratio:.2f} of it")
        gain = series["unified"][at["PROB"]] / series["proportional"][at["PROB"]]
        own = series["unified"][at["GDJ"]] / series["proportional"][at["GDJ"]]
        out.append(f"{panel.title}: unified over proportional is {own:.2f} for GDJ and {gain:.2f} for PROB")
    return tuple(out)


def _of_streams(figure: Figure, setting: Setting) -> tuple[str, ...]:
    series = figure.panels[0].series
    falls = series["PROB"][-1] < series["PROB"][0]
    return (
        *_beats(figure.panels, "GDJ", "PROB"), *_beats(figure.panels, "GDJ", "RAND"),
        f"RAND deteriorates with streams: {'met' if series['RAND'][-1] < series['RAND'][0] else 'refuted'}",
        f"PROB deteriorates with streams: {'met' if falls else 'refuted'}, "
        f"{series['PROB'][0]:.2f} to {series['PROB'][-1]:.2f}", *_ours(figure.panels),
    )  # fmt: skip


def _of_attributes(figure: Figure, setting: Setting) -> tuple[str, ...]:
    series = figure.panels[0].series
    leads = [a / b for a, b in zip(series["GDJ"], series["PROB"], strict=True)]
    return (
        *_beats(figure.panels, "GDJ", "PROB"),
        f"the lead grows with attributes: {'met' if leads[-1] > leads[0] else 'refuted'}, "
        f"{leads[0]:.2f} to {leads[-1]:.2f}",
    )


def _of_skew(figure: Figure, setting: Setting) -> tuple[str, ...]:
    out = []
    for panel in figure.panels:
        first, last = (panel.series["GDJ"][at] / panel.series["PROB"][at] for at in (0, -1))
        word = "met" if first < last else "refuted"
        out.append(f"{panel.title}: GDJ gains on PROB with skew: {word}, from {first:.2f} to {last:.2f} of PROB")
    return (*out, *_ours(figure.panels))


def _of_planes(figure: Figure, setting: Setting) -> tuple[str, ...]:
    wins = [a > b for panel in figure.panels for a, b in zip(panel.series["GDJ"], panel.series["PROB"], strict=True)]
    word = "met" if any(wins) and not all(wins) else "refuted"
    return (f"the surfaces of GDJ and PROB cross: {word}, GDJ is above at {sum(wins)} of {len(wins)} points",)


def _of_sampling(figure: Figure, setting: Setting) -> tuple[str, ...]:
    out: list[str] = []
    for panel in figure.panels:
        if panel.y_label == "recall":
            out += _beats([panel], "GDJ", "PROB")
        else:
            less = sum(a < b for a, b in zip(panel.series["GDJ"], panel.series["PROB"], strict=True))
            word = "met" if less == len(panel.x) else "refuted" if not less else "partly met"
            out.append(
                f"{panel.title}: GDJ distorts less than PROB ({panel.y_label}): {word}, {less} of {len(panel.x)}"
            )
    return tuple(out)
