"""How the files of a batch are spread over its tasks."""

from __future__ import annotations

from collections.abc import Sequence

# Files larger than this are cut by row groups, so that all cores read.
CUT = 64 << 20


def deal(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Return the items of each task, as positions in their order: the largest goes first, to the least loaded task.

    >>> deal([10, 90, 30, 50], 2)
    [[1], [0, 2, 3]]
    """
    tasks: list[list[int]] = [[] for _ in range(min(most, len(sizes)))]
    loads = [0] * len(tasks)
    for at in sorted(range(len(sizes)), key=lambda at: (-sizes[at], at)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(at)
        loads[lightest] += sizes[at]
    return [sorted(task) for task in tasks]


def cut(size: int) -> list[tuple[int, int | None, int]]:
    """Return the parts of a file as (first byte, end, size): the whole of it, or several of a large one.

    >>> cut(100), len(cut(CUT + 1))
    ([(0, None, 100)], 2)
    """
    if size <= CUT:
        return [(0, None, size)]
    return [(start, start + CUT, min(CUT, size - start)) for start in range(0, size, CUT)]
