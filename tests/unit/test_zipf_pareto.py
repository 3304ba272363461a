"""The Zipf-Pareto streams have the popularity and the correlation that were asked for, and the report sees both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import BraidedError
from braided.sim.gdj.locality import locality, stack_distances
from braided.sim.gdj.zipf_pareto import zipf_pareto


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(-3, 3)))
def test_stack_distances_equal_their_definition(keys):
    expected = []
    for i, key in enumerate(keys):
        before = [j for j in range(i) if keys[j] == key]
        expected.append(len(set(keys[before[-1] + 1 : i])) if before else -1)
    assert stack_distances(np.array(keys, np.int64)).tolist() == expected


@pytest.mark.parametrize("pareto", [None, 0.7, 1.5])
@pytest.mark.parametrize("alpha", [0.5, 0.75, 1.2])
def test_popularity_is_zipf_whatever_the_gaps(alpha, pareto):
    table = zipf_pareto(rows=100_000, rate=1000, domain=100, alpha=alpha, pareto=pareto)
    assert locality(table["key"].to_numpy()).slope == pytest.approx(alpha, abs=0.05)


def test_smaller_shapes_correlate_more():
    reports = [
        locality(zipf_pareto(rows=50_000, rate=1000, domain=1000, pareto=p)["key"].to_numpy())
        for p in (None, 1.2, 0.9, 0.6)
    ]
    correlations = [r.correlation for r in reports]
    assert correlations[0] < 0.01
    assert correlations == sorted(correlations)
    assert correlations[-1] > 0.15


def test_times_rise_at_the_rate_and_streams_share_rows_evenly():
    table = zipf_pareto(rows=20_000, rate=500, domain=100, streams=2)
    time = table["time"].cast("int64").to_numpy()
    assert (np.diff(time) >= 0).all()
    assert (time[-1] - time[0]) / 1e6 == pytest.approx(40, rel=0.02)
    assert np.bincount(table["stream"].to_numpy()) / 20_000 == pytest.approx([0.5, 0.5], abs=0.02)


def test_the_same_arguments_give_the_same_table():
    assert zipf_pareto(rows=500, rate=10, seed=4).equals(zipf_pareto(rows=500, rate=10, seed=4))
    assert not zipf_pareto(rows=500, rate=10, seed=4).equals(zipf_pareto(rows=500, rate=10, seed=5))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_tiny_streams(rows):
    table = zipf_pareto(rows=rows, rate=10)
    assert table.num_rows == rows
    locality(table["key"].to_numpy())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rows": -1}, "rows=-1: write a whole number, 0 or more"),
        ({"domain": 0}, "domain=0: write a whole number, 1 or more"),
        ({"rate": 0}, "rate=0: not a rate"),
        ({"alpha": -1}, "alpha=-1: write a skew of 0 or more"),
        ({"pareto": 0}, "pareto=0: write a shape above 0, or None"),
    ],
)
def test_bad_arguments_are_named(options, text):
    with pytest.raises(BraidedError, match=text):
        zipf_pareto(**{"rows": 10, "rate": 1.0, **options})
