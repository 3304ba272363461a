"""`Lateness`: what is refused, and with which words."""

from __future__ import annotations

import pytest

from braided.errors import BraidedError
from braided.time.lateness import Lateness


def test_defaults_are_in_microseconds():
    spec = Lateness()
    assert (spec.floor_us, spec.memory_us, spec.ceiling_us) == (10_000_000, 300_000_000, 3_600_000_000)
    assert (spec.margin, spec.recall, spec.measure, spec.clock_rows) == (0.5, None, "arrival", None)
    assert spec == Lateness()
    assert hash(spec) == hash(Lateness())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"margin": -1}, "margin=-1: not a number of standard deviations; write 0 or more"),
        ({"margin": "0.5"}, "margin='0.5': not a number of standard deviations; write 0 or more"),
        ({"margin": True}, "margin=True: not a number of standard deviations; write 0 or more"),
        ({"margin": float("nan")}, "margin=nan: not a number of standard deviations; write 0 or more"),
        ({"recall": 0}, "recall=0: not a share between 0 and 1; write 0.99"),
        ({"recall": 1.0}, "recall=1.0: not a share between 0 and 1; write 0.99"),
        ({"recall": 99}, "recall=99: not a share between 0 and 1; write 0.99"),
        ({"floor": "soon"}, "floor='soon': not a duration; write '10 seconds'"),
        ({"floor": "-1 second"}, "floor='-1 second': negative; write '0 seconds' or more"),
        ({"memory": "0 seconds"}, "memory='0 seconds': not above 0; write '5 minutes'"),
        ({"ceiling": "5 seconds"}, "ceiling='5 seconds': below floor='10 seconds'; write a longer duration"),
        ({"floor": "0 s", "ceiling": "0 s"}, "ceiling='0 s': below floor='0 s'; write a longer duration"),
        ({"measure": "now"}, "measure='now': unknown value; write 'arrival' or 'next'"),
        (
            {"measure": "next", "recall": 0.9},
            "measure='next': cannot be used with recall=; omit recall= or write measure='arrival'",
        ),
        ({"clock_rows": max}, "clock_rows=: only measure='next' uses it; write measure='next' or omit clock_rows="),
        ({"measure": "next", "clock_rows": 3}, "clock_rows=3: not a function; write a function of a batch"),
    ],
)
def test_what_is_refused(options, text):
    with pytest.raises(BraidedError) as error:
        Lateness(**options)
    assert str(error.value) == text
