"""The loop that tests every pair of a theta join: written from a template, compiled by numba, cached on disk."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numba

_LOOP = '''"""A loop that braided.joins.theta.loop wrote."""
import numpy as np


def loop({probe_names}first, past, i, j, room, probes, found{stored_names}):
    count = 0
    while i < len(first):
{probe_values}
        if j < 0:
            j = first[i]
        while j < past[i]:
            stop = min(j + {strip}, past[i])
{stored_parts}
            hits = 0
            for k in range(stop - j):
                hits += {test}
            if hits:
                if count + hits > room:
                    return i, j, count
                for k in range(stop - j):
                    probes[count] = i
                    found[count] = j + k
                    count += {test}
            j = stop
        i += 1
        j = -1
    return i, -1, count
'''


@lru_cache(maxsize=64)
def loop_of(text: str, probe: tuple[str, ...], stored: tuple[str, ...], strip: int) -> Callable[..., Any]:
    """Compile the loop that tests every pair for an expression over named slots of the probe and stored rows.

    It is called as ``loop(*probe arrays, first, past, i, j, room, probes, found, *stored arrays)`` and fills
    a piece as ``theta_band.nested`` does. Compiling two comparisons takes 0.35 s, loading them from the cache 0.013 s.
    """
    test = text or "True"
    for name in sorted(stored, key=len, reverse=True):
        test = re.sub(rf"\b{name}\b", f"{name}_[k]", test)
    source = _LOOP.format(
        probe_names="".join(f"{name}s, " for name in probe),
        stored_names="".join(f", {name}" for name in stored),
        probe_values="\n".join(f"        {name} = {name}s[i]" for name in probe),
        stored_parts="\n".join(f"            {name}_ = {name}[j:stop]" for name in stored),
        strip=strip,
        test=test,
    )
    module = ModuleType(f"braided_theta_{hashlib.sha256(source.encode()).hexdigest()[:16]}")
    path = _stored_source(module.__name__, source)
    exec(compile(source, path or "<theta loop>", "exec"), module.__dict__)
    sys.modules[module.__name__] = module  # where numba's cache looks for the globals of what it loads
    return cast(Callable[..., Any], numba.njit(module.loop, cache=path is not None, nogil=True, error_model="numpy"))


def _stored_source(name: str, source: str) -> str | None:
    """Write a loop to the user's own cache, since numba caches only what has a file; None if that cannot be."""
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "braided-theta"
    path = folder / f"{name}.py"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            return None  # others could write code that we would run
        if not path.exists() or path.read_text() != source:
            part = folder / f"{name}.{os.getpid()}"
            part.write_text(source)
            part.replace(path)
    except (OSError, RuntimeError):
        return None
    return str(path)
