"""Hierarchies of event detectors: who sends how many events to whom, for placement (EBS, sections 4.3 and 5.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PATTERNS = (
    # Two chains of four, then the same detectors paired across: what was best is worst after a swap.
    ((0, 1, 2, 3), (4, 5, 6, 7)),
    ((0, 4, 1, 5), (2, 6, 3, 7)),
)


def swing(pattern: int) -> Floats:
    """Return the traffic of the paper's 8 detectors in one of two alternating patterns (Figure 6a's, in kind).

    The figure's arrows cannot be read from the text. Ours have two groups of four with much traffic inside and a little
    between them. The patterns group the detectors differently, and both differ from the paper's static allocation.

    >>> [swing(pattern)[2, 3].item() for pattern in (0, 1)]
    [60.0, 30.0]
    """
    traffic = np.zeros((8, 8))
    groups = PATTERNS[pattern % 2]
    for group in groups:
        for place, detector in enumerate(group[1:]):
            traffic[group[place], detector] = 100.0 - 20.0 * place
        traffic[group[0], group[2]] = 30.0
    traffic[groups[0][3], groups[1][0]] = 5.0
    return traffic


def hierarchy(count: int, *, seed: int, layers: int = 4) -> tuple[Floats, Floats]:
    """Return the traffic and the CPU of a random hierarchy: every detector hears one to three of the layer below it.

    Events become fewer from layer to layer, as meaning becomes more; CPU grows with the events that a detector hears.

    >>> traffic, cpu = hierarchy(10, seed=1)
    >>> traffic.shape, bool((np.triu(traffic, 1) == traffic).all())
    ((10, 10), True)
    """
    random = np.random.default_rng(seed)
    layer = np.sort(np.concatenate((np.arange(layers), random.integers(layers, size=max(0, count - layers)))))[:count]
    rate = 1000.0 * 0.4**layer * random.uniform(0.5, 2.0, size=count)
    traffic = np.zeros((count, count))
    for detector in np.flatnonzero(layer > 0).tolist():
        below = np.flatnonzero(layer == layer[detector] - 1)
        heard = random.choice(below, size=min(len(below), int(random.integers(1, 4))), replace=False)
        traffic[heard, detector] = rate[heard]
    cpu = 0.02 + traffic.sum(axis=0) / 1e4
    return traffic, cpu
