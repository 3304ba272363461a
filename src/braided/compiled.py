"""The one way a kernel is compiled: by numba, once per machine, cached on disk.

A kernel loops over plain numpy arrays, allocates little and never sees a Python object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel on its first call; later processes load it from numba's cache.

    Loading takes 20 ms where compiling takes a second, which is what keeps a first batch short.
    """
    return cast(Callable[P, R], numba.njit(kernel, cache=True, nogil=True, error_model="numpy", _nrt=True))


def in_place(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel, or a part of one, that allocates nothing; what it calls may.

    References to its arrays are not counted then. Counting is an atomic instruction for every array that is handed to a
    function or taken from a tuple, and took half of the time of the buffers' kernel.
    """
    return cast(Callable[P, R], numba.njit(kernel, cache=True, nogil=True, error_model="numpy", _nrt=False))
