"""The distance of a sample's distribution from that of all results (sections 4.2 and 5.4 of the paper)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braided.errors import OptionError

__all__ = ["Distortion", "distortion", "key_counts"]

Counts = npt.NDArray[np.int64]


class Distortion(NamedTuple):
    """sse : the sum of squared differences of the two normalised histograms, from 0 (equal) to 2.

    kl : the Kullback-Leibler distance of the sample from all results, in nats; 0 if they are equal.
    """

    sse: float
    kl: float


def key_counts(produced: Any, exact: Any) -> tuple[Counts, Counts]:
    """Return how often each key occurs in two arrays of keys, in the same order of keys.

    >>> key_counts(["a", "b", "a"], ["a", "b", "c", "a"])
    (array([2, 1, 0]), array([2, 1, 1]))
    """
    a, b = np.asarray(produced), np.asarray(exact)
    keys, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
    return np.bincount(codes[: len(a)], minlength=len(keys)), np.bincount(codes[len(a) :], minlength=len(keys))


def distortion(produced: npt.NDArray[Any], exact: npt.NDArray[Any]) -> Distortion:
    """Compare the counts of results per key, produced and exact, in the same order of keys.

    Cost: one pass. Every produced key must be in the exact result too, and there must be results.

    >>> distortion(np.array([5, 5]), np.array([50, 50]))
    Distortion(sse=0.0, kl=0.0)
    """
    if len(produced) != len(exact):
        raise OptionError(
            f"produced, exact: counts of {len(produced)} and of {len(exact)} keys; pass counts of the same keys"
        )
    if not np.sum(produced) or not np.sum(exact):
        raise OptionError("produced, exact: no results to compare; pass counts above 0")
    if ((np.asarray(produced) > 0) & (np.asarray(exact) == 0)).any():
        raise OptionError("produced, exact: the exact result does not have a produced key; pass its own counts")
    p, q = np.asarray(produced) / np.sum(produced), np.asarray(exact) / np.sum(exact)
    there = p > 0
    kl = float((p[there] * np.log(p[there] / q[there])).sum())
    return Distortion(float(((p - q) ** 2).sum()), max(0.0, kl))
