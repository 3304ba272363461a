"""Add byte code to the archive from which Spark's Python processes load PySpark.

    python scripts/zip_bytecode.py

Spark starts Python with `pyspark.zip` in front of everything else, and Python never writes byte code into an archive:
each process that is not forked compiles PySpark anew, 0.4 s of CPU. One is started for every stateful operator of a
query.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from importlib.util import find_spec, source_hash
from pathlib import Path


def main() -> None:
    """Write the archive anew, with byte code beside every module but tests."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    archive = Path(spec.origin).parent / "python" / "lib" / "pyspark.zip"
    whole = archive.with_suffix(".part")
    with zipfile.ZipFile(archive) as old:
        entries = [(entry, old.read(entry)) for entry in old.infolist() if not entry.filename.endswith(".pyc")]
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as new:
        for entry, content in entries:
            new.writestr(entry, content)
            if entry.filename.endswith(".py") and "/tests/" not in entry.filename:
                with warnings.catch_warnings(action="ignore"):
                    code = compile(content, entry.filename, "exec", dont_inherit=True)
                new.writestr(f"{entry.filename}c", _code_to_hash_pyc(code, source_hash(content), checked=False))
    os.replace(whole, archive)


if __name__ == "__main__":
    main()
