"""All kernels are compiled here: by numba, once per machine, cached on disk.

A kernel loops over plain numpy arrays, allocates little and never uses a Python object.

Numba's own cache only checks the file of a function. If a kernel is edited and a kernel in another file has inlined it,
numba would still run the old code. Here the cache key is a digest of everything that is compiled: the kernel's code,
the kernels that it calls or closes over, and the constants that they use, in any file. Moving lines does not change it.
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

# All kernels with all their types need about 700 files; theta joins add two files for each predicate.
_MOST_FILES = 4_000

# The seconds that a process waits for another process which compiles the same kernel.
_PATIENCE = 60.0
_LOOK = 0.02

_log = logging.getLogger(__name__)


def compiled(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel on its first call; later processes load it from the cache.

    Loading takes 20 ms, compiling takes a second. This keeps the first batch short.
    """
    return _compiled(kernel, allocates=True)


def in_place(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel, or a part of one, that allocates nothing; functions that it calls may allocate.

    References to its arrays are then not counted. Counting costs an atomic instruction for every array that is passed
    to a function or taken from a tuple. It took half of the time of the buffers' kernel.
    """
    return _compiled(kernel, allocates=False)


def inlined(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of a kernel that allocates nothing, and inline it wherever it is called.

    Use it for a part that takes many arrays and is called in one or two places: each array is passed as seven words or
    more, all through memory. Inlining its three largest parts makes the buffers' kernel a sixth faster, and does not
    make it slower to compile.
    """
    return _compiled(kernel, allocates=False, inline=True)


def _compiled(kernel: Callable[P, R], *, allocates: bool, inline: bool = False) -> Callable[P, R]:
    kernel.compiled_as = allocates, inline  # type: ignore[attr-defined]
    # No kernel is used as a C function. Without the C wrapper, compiling is a fifth less work.
    dispatcher = numba.njit(
        kernel, nogil=True, error_model="numpy", _nrt=allocates, forceinline=inline, no_cfunc_wrapper=True
    )
    cache = KernelCache(kernel)
    dispatcher._cache = cache  # njit(cache=True) does the same with numba's own cache
    dispatcher.compile = cache.in_turn(dispatcher.compile)
    return cast(Callable[P, R], dispatcher)


class KernelCache:
    """The machine code of a kernel on disk: read if it is there and complete, or else compiled and written."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self._kernel = kernel
        self._taken: list[int] = []

    def in_turn(self, compile_for: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that compiles or loads this kernel for some types, while other processes wait."""

        def one_at_a_time(signature: Any) -> Any:
            try:
                return compile_for(signature)
            finally:
                while self._taken:
                    _release(self._taken.pop())

        return one_at_a_time

    @cached_property
    def _files(self) -> Any:
        """Numba's cache of this kernel, made at its first use: a kernel may use functions that are defined below it."""
        folder = kernel_folder()
        if folder is None:
            return None
        try:
            return _Files(self._kernel)
        except RuntimeError as error:  # NUMBA_CACHE_LOCATOR_CLASSES names other locators
            _warn(str(error))
            return None

    @property
    def cache_path(self) -> str | None:
        """See numba's `_Cache`."""
        return None if self._files is None else str(self._files.cache_path)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """See numba's `_Cache`. If another process is compiling it, wait for that; None: this process must compile."""
        overload = self._load(signature, context)
        if overload is None and self._files is not None:
            turn = self._turn(signature)
            _wait_for(turn)
            self._taken.append(turn)
            overload = self._load(signature, context)
        return overload

    def _load(self, signature: Any, context: Any) -> Any:
        """Return the kernel on disk; None if there is none, or if it cannot be read."""
        if self._files is None:
            return None
        try:
            return self._files.load_overload(signature, context)
        except Exception as error:
            _log.info("kernel %s: %r while reading its cache; compiling it again", self._kernel.__qualname__, error)
            with contextlib.suppress(OSError):
                self._files.flush()
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """See numba's `_Cache`. If the disk is full, the next process compiles again."""
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
    """The folder of a kernel's machine code, and the digest of its source."""

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
        # Kernels that close over different functions have the same name, but a file has the stamp of one kernel only.
        own = source_digest(self._kernel)[:16] if self._kernel.__closure__ else ""
        return f"{self._kernel.__module__}{own}"


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]  # noqa: RUF012 - numba's


class _Files(FunctionCache):  # type: ignore[misc]
    _impl_class = _Implementation

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        # Numba also adds the pickled closure to the key. If the closure contains a kernel, that differs from process to
        # process. The digest covers the closure already.
        return signature, codegen.magic_tuple()


def source_digest(kernel: Callable[..., Any]) -> str:
    """Return a digest of everything that is compiled into a kernel; all 146 kernels together take 6 ms."""
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
    """Return a digest of a kernel's own code and of the constants that it uses, and the kernels that it calls."""
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
                raise TypeError(
                    f"kernel {name} uses {named!r}, a {type(value).__name__}; use only numbers and kernels in it"
                )
    return hashlib.sha256(repr(parts).encode()).hexdigest(), callees


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _wait_for(turn: int) -> None:
    """Take a turn when no other process has it. Processes that start together would all compile the same kernels.

    A turn is a lock on one byte of a file, and is released when its process ends. If a turn stays taken, or if the file
    system has no locks, this process compiles too.
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
    """Open the file of the turns and never close it: closing it would release all turns of this process."""
    return os.open(f"{kernel_folder()}/turns", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@lru_cache(maxsize=1)
def kernel_folder() -> Path | None:
    """Return the folder for machine code; None (with a warning) if no folder can be written, as in some containers.

    It is in NUMBA_CACHE_DIR if that is set. Otherwise it is beside the package, in the user's cache or in the folder
    for temporary files: the first of these that only this user can write, because this process runs the code in it.
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
    """Create a folder for this user only; False if it is a link, another user's, open to others or not writable."""
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
    """Delete the older half if there are too many files: most are of predicates that are no longer used."""
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
            f"every process compiles its kernels, which takes seconds in each: {why}; set NUMBA_CACHE_DIR to a "
            "folder that only this user can write",
            RuntimeWarning,
            stacklevel=2,
        )


_warned: list[str] = []
