"""Sort rows by (key hash, time), or by time alone.

A counting sort by the top bits of the hashes fills a directory, and each entry of it is sorted. The rows of hash h are
in ``[directory[h >> shift], directory[(h >> shift) + 1])``, only a few rows unless a key is hot.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled

Words = npt.NDArray[np.uint64]
Times = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]
Directory = npt.NDArray[np.int32]

SMALL = 24  # for fewer rows, insertion sort and linear search are faster
_FEW = 4_096  # for fewer rows, numpy's sort is used, for which no kernel must be loaded
_DIGIT = 12  # the most bits that one pass over times sorts by: its counts fit into the L1 cache


def directory_shift(rows: int) -> int:
    """Return the shift with at most one row per directory entry on average; an empty entry ends a search at once."""
    bits = max(1, min(22, int(rows).bit_length()))
    return 64 - bits


@compiled
def build_directory(hashes: Words, shift: int) -> Directory:
    """Return the directory of hashes, sorted or not."""
    size = 1 << (64 - shift)
    directory = np.zeros(size + 1, np.int32)
    for h in hashes:
        directory[np.int64(h >> np.uint64(shift)) + 1] += 1
    for b in range(size):
        directory[b + 1] += directory[b]
    return directory


@compiled
def _insertion_sort(order: Index, hashes: Words, times: Times, start: int, end: int) -> None:
    for i in range(start + 1, end):
        row = order[i]
        h, t = hashes[row], times[row]
        j = i
        while j > start:
            before = order[j - 1]
            if hashes[before] < h or (hashes[before] == h and times[before] <= t):
                break
            order[j] = before
            j -= 1
        order[j] = row


@compiled
def _merge_sort(order: Index, hashes: Words, times: Times, start: int, end: int) -> None:
    """Sort a long range, bottom up. Runs that are in order already, as often for a hot key, are only checked.

    This is not numba's own argsort, which takes five seconds to compile.
    """
    spare = np.empty(end - start, np.int64)
    width = SMALL
    for low in range(start, end, width):
        _insertion_sort(order, hashes, times, low, min(low + width, end))
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            if middle == high:
                continue
            a, b = order[middle - 1], order[middle]
            if hashes[a] < hashes[b] or (hashes[a] == hashes[b] and times[a] <= times[b]):
                continue
            i, j, k = low, middle, 0
            while i < middle and j < high:
                a, b = order[i], order[j]
                if hashes[a] < hashes[b] or (hashes[a] == hashes[b] and times[a] <= times[b]):
                    spare[k] = a
                    i += 1
                else:
                    spare[k] = b
                    j += 1
                k += 1
            while i < middle:
                spare[k] = order[i]
                i += 1
                k += 1
            # The rest of the right half is in place already.
            for m in range(k):
                order[low + m] = spare[m]
        width *= 2


@compiled
def sort_order(hashes: Words, times: Times, directory: Directory, shift: int) -> Index:
    """Return the stable order by (hash, time): a counting sort into directory entries, which are then sorted."""
    n = len(hashes)
    order = np.empty(n, np.int64)
    at = directory[:-1].copy()
    for i in range(n):
        b = np.int64(hashes[i] >> np.uint64(shift))
        order[at[b]] = i
        at[b] += 1
    for entry in range(len(directory) - 1):
        start, end = directory[entry], directory[entry + 1]
        if end - start <= SMALL:
            _insertion_sort(order, hashes, times, start, end)
        else:
            _merge_sort(order, hashes, times, start, end)
    return order


def time_order(times: Times) -> Index:
    """Return the stable order of times.

    >>> time_order(np.array([30, 10, 20, 10])).tolist()
    [1, 3, 2, 0]
    """
    rows = len(times)
    if rows < _FEW or rows >> 31:
        return np.argsort(times, kind="stable")
    low, bits = int(times.min()), (rows - 1).bit_length()
    span = int(times.max()) - low
    return np.argsort(times, kind="stable") if span >> (63 - bits) else _radix_order(times, low, span, bits)


def _radix_order(times: Times, low: int, span: int, bits: int) -> Index:
    # Allocated by numpy, which requests large pages; arrays that a kernel allocates do not have them.
    words, others = np.empty(len(times), np.uint64), np.empty(len(times), np.uint64)
    in_others = _sort_words(times, low, span, bits, words, others)
    return (others if in_others else words).view(np.int64)


@compiled
def _sort_words(times: Times, low: int, span: int, bits: int, words: Words, others: Words) -> bool:
    """Sort words of (time since the first, row), digit by digit, from the lowest digit in which times differ.

    Times of a batch are close to each other, so two or three passes are enough; a sort by comparison needs twenty. The
    last pass writes the order itself. Returns whether the order is in `others`.
    """
    width = 1
    while span >> width:
        width += 1
    passes = (width + _DIGIT - 1) // _DIGIT
    digit = (width + passes - 1) // passes
    mask = np.uint64((1 << digit) - 1)
    at = np.empty(1 << digit, np.int32)
    for i in range(len(times)):
        words[i] = np.uint64(times[i] - low) << np.uint64(bits) | np.uint64(i)
    for p in range(passes):
        shift = np.uint64(bits + p * digit)
        low_bits = np.uint64((1 << bits) - 1) if p == passes - 1 else ~np.uint64(0)
        at[:] = 0
        for i in range(len(words)):
            at[np.int64(words[i] >> shift & mask)] += 1
        total = 0
        for number in range(len(at)):
            count = at[number]
            at[number] = total
            total += count
        for i in range(len(words)):
            word = words[i]
            entry = np.int64(word >> shift & mask)
            others[at[entry]] = word & low_bits
            at[entry] += 1
        words, others = others, words
    return passes % 2 == 1
