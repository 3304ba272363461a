"""Break the code on purpose, one way at a time, and see that the tests notice.

    python scripts/mutations.py                        every chosen mutation, half an hour
    python scripts/mutations.py deaths                 those whose name contains the word
    python scripts/mutations.py --random 50 --seed 3   small faults at random places, and how many are noticed

Each mutation changes one file of a copy of the project and runs the tests that should turn red. A chosen mutation whose
text is not found, or whose tests pass, fails the run. Random ones are only counted (see `random_mutants.py`): those
that pass are tried again as `./check --slow` would, and one that only then turns red says what the quick check misses.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from mutants import CORE, MUTATIONS
from random_mutants import draw

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src") / "braided"
# A fault may make a loop endless. In seconds of CPU, since the machine may be busy.
PATIENCE_S = 400
UNNOTICED = "no test noticed"


class Workshop:
    """A copy of the project, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder)

    def trouble(self, file: str, mutated: str, tests: tuple[str, ...], *, slow: bool = False) -> str | None:
        """Return None if the tests notice the changed file, else what is wrong."""
        path = self._folder / PACKAGE / file
        before, times = path.read_text(), path.stat()
        path.write_text(mutated)
        try:
            return self._run("@compiled" in before, tests, slow)
        finally:
            path.write_text(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _run(self, kernel: bool, tests: tuple[str, ...], slow: bool) -> str | None:
        # numba does not look at what a kernel calls in other files: a changed kernel needs a cache of its own.
        cache = Path(tempfile.mkdtemp(dir=self._folder)) if kernel else self._folder / "numba"
        environment = {**os.environ, "PYTHONPATH": str(self._folder / "src"), "NUMBA_CACHE_DIR": str(cache)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not spark"]
        command += ["-o", "addopts=", f"--hypothesis-profile={'slow-' if slow else ''}mutations", *tests]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE_S, PATIENCE_S + 5)),
        )
        if kernel:
            shutil.rmtree(cache)
        if done.returncode in {-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGSEGV}:
            return None
        if done.returncode == 1 and "FAILED" in done.stdout:
            return None
        if done.returncode == 2 and "ERROR collecting" in done.stdout:
            return None
        return UNNOTICED if done.returncode == 0 else done.stdout[-2000:] + done.stderr[-2000:]


def run_chosen(workshop: Workshop, words: list[str]) -> int:
    """Run the mutations whose names contain a word; return how many survived."""
    chosen = [m for m in MUTATIONS if not words or any(word in m.name for word in words)]
    survivors = 0
    for mutation in chosen:
        started = time.monotonic()
        text = (ROOT / PACKAGE / mutation.file).read_text()
        if text.count(mutation.old) == 1:
            trouble = workshop.trouble(mutation.file, text.replace(mutation.old, mutation.new), mutation.tests)
        else:
            trouble = f"its text occurs {text.count(mutation.old)} times in {mutation.file}"
        survivors += trouble is not None
        word = "ok  " if trouble is None else "FAIL"
        print(f"{word} {time.monotonic() - started:5.0f} s  {mutation.name}", flush=True)
        if trouble is not None:
            print(f"     {trouble}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutations noticed")
    return survivors


def run_random(workshop: Workshop, count: int, seed: int) -> None:
    """Put random faults into the core; print which are noticed, and which by the slow check alone."""
    verdicts: Counter[str] = Counter()
    for file, site in draw(ROOT / PACKAGE, list(CORE), count, seed):
        started = time.monotonic()
        text = (ROOT / PACKAGE / file).read_bytes()
        mutated = (text[: site.start] + site.new.encode() + text[site.stop :]).decode()
        trouble, verdict = workshop.trouble(file, mutated, CORE[file]), "noticed"
        if trouble is not None:
            trouble = workshop.trouble(file, mutated, CORE[file], slow=True)
            verdict = "noticed by --slow" if trouble is None else "survived"
        verdicts[verdict] += 1
        what = f"{file}:{site.line} `{text[site.start : site.stop].decode()}` becomes `{site.new}`"
        print(f"{verdict:17} {time.monotonic() - started:5.0f} s  {what}", flush=True)
        if trouble not in {None, UNNOTICED}:
            print(f"     {trouble}", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common()))


def main() -> int:
    """Run what is asked for; return 1 if a chosen mutation survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="parts of names of chosen mutations")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N faults at random places instead")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        if options.random:
            run_random(workshop, options.random, options.seed)
            return 0
        return min(run_chosen(workshop, options.words), 1)


if __name__ == "__main__":
    sys.exit(main())
