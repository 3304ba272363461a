"""The one way a kernel is compiled: by numba, once per machine, cached on disk.

A kernel loops over plain numpy arrays, allocates little and never sees a Python object.

Numba's own cache looks at the file of a function alone, and would go on running what an edited kernel was before where
another has it inlined. Here machine code belongs to a digest of all that is compiled into it: the kernel's code, the
kernels it calls or closes over and the constants they name, wherever they are written. Moved lines change nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

P = ParamSpec("P")
R = TypeVar("R")

# All kernels with all their types make some 700 files; loops of theta joins add two for each predicate.
_MOST_FILES = 4_000

# Seconds for which a process waits for another that compiles what it needs.
_PATIENCE = 60.0
_LOOK = 0.02

_log = logging.getLogger(__name__)


def compiled(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel on its first call; later processes load it from the cache.

    Loading takes 20 ms where compiling takes a second, which is what keeps a first batch short.
    """
    return _compiled(kernel, allocates=True)


def in_place(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel, or a part of one, that allocates nothing; what it calls may.

    References to its arrays are not counted then. Counting is an atomic instruction for every array that is handed to a
    function or taken from a tuple, and took half of the time of the buffers' kernel.
    """
    return _compiled(kernel, allocates=False)


def inlined(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of a kernel that allocates nothing, and put its code wherever it is called.

    For what takes many arrays and is called in one or two places: an array is handed over as seven words or more, all
    of them by way of memory. The buffers' kernel is a sixth faster for its three largest parts, and compiles as soon.
    """
    return _compiled(kernel, allocates=False, inline=True)


def _compiled(kernel: Callable[P, R], *, allocates: bool, inline: bool = False) -> Callable[P, R]:
    kernel.compiled_as = allocates, inline  # type: ignore[attr-defined]
    # What a kernel calls would be compiled as it is itself. Nobody takes a kernel as a C function: a fifth less to do.
    dispatcher = numba.njit(
        kernel, nogil=True, error_model="numpy", _nrt=allocates, forceinline=inline, no_cfunc_wrapper=True
    )
    cache = KernelCache(kernel)
    dispatcher._cache = cache  # what njit(cache=True) does, with numba's own
    dispatcher.compile = cache.in_turn(dispatcher.compile)
    return cast(Callable[P, R], dispatcher)


class KernelCache:
    """The machine code of a kernel on disk: read if it is there and whole, else compiled and written if that can be."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self._kernel = kernel
        self._taken: list[int] = []

    def in_turn(self, compile_for: Callable[..., Any]) -> Callable[..., Any]:
        """Return what compiles this kernel for some types, or loads it, and lets other processes wait meanwhile."""

        def one_at_a_time(signature: Any) -> Any:
            try:
                return compile_for(signature)
            finally:
                while self._taken:
                    _release(self._taken.pop())

        return one_at_a_time

    @cached_property
    def _files(self) -> Any:
        """Numba's cache of this kernel, made when it is first needed: a kernel may name what is written below it."""
        folder = kernel_folder()
        if folder is None:
            return None
        try:
            return _Files(self._kernel)
        except RuntimeError as error:  # NUMBA_CACHE_LOCATOR_CLASSES names others than ours
            _warn(str(error))
            return None

    @property
    def cache_path(self) -> str | None:
        """See numba's `_Cache`."""
        return None if self._files is None else str(self._files.cache_path)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """See numba's `_Cache`. What another process is compiling is waited for; None leaves it to this one."""
        overload = self._load(signature, context)
        if overload is None and self._files is not None:
            turn = self._turn(signature)
            _wait_for(turn)
            self._taken.append(turn)
            overload = self._load(signature, context)
        return overload

    def _load(self, signature: Any, context: Any) -> Any:
        """Return what is on disk; what cannot be read is compiled anew."""
        if self._files is None:
            return None
        try:
            return self._files.load_overload(signature, context)
        except Exception as error:
            _log.info("kernel %s: %r in its cache; compiled anew", self._kernel.__qualname__, error)
            with contextlib.suppress(OSError):
                self._files.flush()
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """See numba's `_Cache`. A full disk only means that the next process compiles again."""
        if self._files is None:
            return
        try:
            self._files.save_overload(signature, result)
        except OSError as error:
            _warn(str(error))

    def _turn(self, signature: Any) -> int:
        """Return a number for the compilation of this kernel for these types."""
        name = f"{source_digest(self._kernel)} {signature}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])

    def enable(self) -> None:
        """See numba's `_Cache`."""

    def disable(self) -> None:
        """See numba's `_Cache`."""

    def flush(self) -> None:
        """See numba's `_Cache`."""
        if self._files is not None:
            self._files.flush()


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Where a kernel's machine code lies, and what it was made of."""

    def __init__(self, kernel: Callable[..., Any], file: str) -> None:
        self._kernel = kernel
        self._py_file = file

    @classmethod
    def from_function(cls, kernel: Callable[..., Any], file: str) -> _Locator:
        return cls(kernel, file)

    def get_cache_path(self) -> str:
        return str(kernel_folder())

    def get_source_stamp(self) -> str:
        return source_digest(self._kernel)

    def get_disambiguator(self) -> str:
        # Kernels that close over different parts have one name, and a file has the stamp of one kernel.
        own = source_digest(self._kernel)[:16] if self._kernel.__closure__ else ""
        return f"{self._kernel.__module__}{own}"


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]  # noqa: RUF012 - numba's


class _Files(FunctionCache):  # type: ignore[misc]
    _impl_class = _Implementation

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        # Numba adds what the kernel closes over as pickled, which differs from process to process where that is a
        # kernel. The digest has it.
        return signature, codegen.magic_tuple()


def source_digest(kernel: Callable[..., Any]) -> str:
    """Return a digest of all that is compiled into a kernel; those of all 146 take 6 ms together."""
    sources: dict[Callable[..., Any], str] = {}
    waiting = [kernel]
    while waiting:
        function = waiting.pop()
        if function not in sources:
            sources[function], callees = _own_digest(function)
            waiting += callees
    return hashlib.sha256("".join(sources.values()).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _own_digest(kernel: Callable[..., Any]) -> tuple[str, list[Callable[..., Any]]]:
    """Return a digest of a kernel's own code and of the constants it names, and the kernels that it calls."""
    assert isinstance(kernel, FunctionType)
    name = f"{kernel.__module__}.{kernel.__qualname__}"
    parts: list[Any] = [name, getattr(kernel, "compiled_as", None)]
    callees = []
    cells = [cell.cell_contents for cell in kernel.__closure__ or ()]
    around = {**kernel.__globals__, **dict(zip(kernel.__code__.co_freevars, cells, strict=True))}
    for code in _codes(kernel.__code__):
        constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
        parts += [code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_flags, constants]
        for named in (*code.co_names, *code.co_freevars):
            value: Any = around.get(named)
            if isinstance(value, bool | int | float | np.generic | tuple):
                parts.append((named, value))
            elif hasattr(value, "py_func"):
                callees.append(value.py_func)
            elif value is not None and value is not np:
                raise TypeError(f"kernel {name} names {named!r}, a {type(value).__name__}; write numbers and kernels")
    return hashlib.sha256(repr(parts).encode()).hexdigest(), callees


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _wait_for(turn: int) -> None:
    """Take a turn, once nobody else has it: processes that start together would all compile the same kernels.

    A turn is a byte of a file that is locked, and free again when its process ends. One that stays taken, and a file
    system without locks, mean that this process compiles too.
    """
    try:
        file = _turns()
    except OSError:
        return
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, turn)
        except (BlockingIOError, PermissionError):  # taken
            if time.monotonic() > ends:
                return
            time.sleep(_LOOK)
        except OSError:
            return
        else:
            return


def _release(turn: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.lockf(_turns(), fcntl.LOCK_UN, 1, turn)


@lru_cache(maxsize=1)
def _turns() -> int:
    """Open the file of the turns, for good: closing it would give up all that this process has."""
    return os.open(f"{kernel_folder()}/turns", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@lru_cache(maxsize=1)
def kernel_folder() -> Path | None:
    """Return the folder for machine code, None (with a warning) where none can be written, as in some containers.

    It is in NUMBA_CACHE_DIR if that is set, else beside the package, in the user's cache or in the folder for temporary
    files: the first that is, or can be made, this user's alone, since who writes there decides what this process runs.
    """
    package = Path(__file__).resolve().parent
    own = f"braided-{hashlib.sha256(str(package).encode()).hexdigest()[:12]}"
    for folder in _candidates(package, own):
        if private_folder(folder):
            _prune(folder)
            return folder
    _warn("no folder can be written")
    return None


def _candidates(package: Path, own: str) -> Iterator[Path]:
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR) / own
        return
    yield package / "__pycache__" / "kernels"
    with contextlib.suppress(RuntimeError):  # no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / own
    with contextlib.suppress(OSError):  # nothing can be written anywhere
        yield Path(os.environ.get("BRAIDED_CACHE_DIR") or tempfile.gettempdir()) / f"{own}-{os.getuid()}"


def private_folder(folder: Path) -> bool:
    """Create a folder for this user alone; False if it is a link, somebody else's, open to others or not writable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            return False
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _prune(folder: Path) -> None:
    """Delete the older half where there are too many: loops of predicates that nobody asks for any more."""
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
        if len(names) > _MOST_FILES:
            paths = sorted((folder / name for name in names), key=lambda path: path.lstat().st_mtime_ns)
            for path in paths[: len(paths) // 2]:
                path.unlink(missing_ok=True)


def _warn(why: str) -> None:
    if not _warned:
        _warned.append(why)
        warnings.warn(
            f"kernels are compiled in every process, which takes seconds in each: {why}; set NUMBA_CACHE_DIR to a "
            "folder that this user alone can write",
            RuntimeWarning,
            stacklevel=2,
        )


_warned: list[str] = []
