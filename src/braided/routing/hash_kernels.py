"""Compiled hash kernels. They do not depend on the process, so a task that runs again routes rows as before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled

_BYTES_SEED = np.uint64(0x9E3779B97F4A7C15)
_BYTES_MULTIPLIER = np.uint64(0x880355F21E6D1965)


@compiled
def mix(word: np.uint64) -> np.uint64:
    """The finaliser of splitmix64: a bijection of 64-bit words in which every output bit depends on every input bit."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def hash_words(words: npt.NDArray[np.uint64], hashes: npt.NDArray[np.uint64]) -> None:
    """Mix one word per row into the rows' hashes; for a hash of zero this is a bijection of the word."""
    for i in range(len(words)):
        hashes[i] = mix(hashes[i] * np.uint64(31) + words[i])


@compiled
def hash_bytes(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], hashes: npt.NDArray[np.uint64]) -> None:
    """Mix one byte string per row into the rows' hashes, eight bytes at a time, and its length."""
    for i in range(len(hashes)):
        at, end = offsets[i], offsets[i + 1]
        state = (hashes[i] * np.uint64(31)) ^ (np.uint64(end - at) * _BYTES_MULTIPLIER) ^ _BYTES_SEED
        while at < end:
            word = np.uint64(0)
            stop = min(at + 8, end)
            shift = np.uint64(0)
            while at < stop:
                word |= np.uint64(data[at]) << shift
                shift += np.uint64(8)
                at += 1
            state = (state ^ mix(word)) * _BYTES_MULTIPLIER
        hashes[i] = mix(state)


@compiled
def salt(hashes: npt.NDArray[np.uint64], tags: npt.NDArray[np.int32]) -> None:
    """Change each hash by its tag, in place: a bijection for every tag; tag 0 changes nothing."""
    for i in range(len(hashes)):
        if tags[i] != 0:
            hashes[i] ^= mix(np.uint64(tags[i]))
