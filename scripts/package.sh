#!/usr/bin/env bash
# Builds a wheel and an sdist and installs each into a clean environment with the base dependencies only, where it must
# pass `braided doctor --join`; the wheel is then tried with all extras. Takes some minutes, and an index that pip knows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/build"
"$work/build/bin/pip" install --quiet --require-hashes -r requirements-build.lock
"$work/build/bin/python" -m hatchling build -d "$work/dist"
for file in "$work"/dist/*.whl "$work"/dist/*.tar.gz; do
  echo "== $(basename "$file")"
  rm -rf "$work/clean"
  python3 -m venv "$work/clean"
  # What the lock says is installed, as users would get it from an index on that day.
  "$work/clean/bin/pip" install --quiet --constraint <(sed 's/ *\\$//; /--hash/d' requirements.lock) "$file"
  (
    cd "$work"
    unset PYTHONPATH PYSPARK_PYTHON
    export PATH="$work/clean/bin:$PATH"
    braided --version
    braided doctor --join
    python -c 'import braided, braided.ui.page as page; page.whole_page([], ""); print("the page is in the package")'
  )
done
"$work/clean/bin/pip" install --quiet --constraint <(sed 's/ *\\$//; /--hash/d' requirements.lock) "$(ls "$work"/dist/*.whl)[all]"
"$work/clean/bin/python" -c 'import cryptography, duckdb, fsspec; print("braided[all] has its extras")'
