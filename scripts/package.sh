#!/usr/bin/env bash
# Builds a wheel and an sdist and installs each into a clean environment with the base dependencies only, where it must
# pass `braided doctor --join`; the wheel is then tried with all extras, with which the demo runs.
#
#   scripts/package.sh [FOLDER]    keeps the wheel, the sdist and the release notes of the version in FOLDER
#
# Set PYTHON to choose an interpreter. Takes some minutes per interpreter, and needs an index that pip knows.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
kept="${1:+$(mkdir -p "$1" && cd "$1" && pwd -P)}"
cd "$here"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python="${PYTHON:-python3}"
"$python" --version
# Installs the locked versions, as users would get them from an index on that day.
sed 's/ *\\$//; /--hash/d' requirements.lock >"$work/constraints"

"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet --require-hashes -r requirements-build.lock
"$work/build/bin/python" -m hatchling build -d "$work/dist"

# The section of the changelog that has the version in its heading.
version="$("$work/build/bin/python" -m hatchling version)"
awk -v head="## $version" 'index($0, head) == 1 { on = 1; print; next } /^## / { on = 0 } on' CHANGELOG.md >"$work/dist/NOTES.md"
test -s "$work/dist/NOTES.md" || { echo "package.sh: CHANGELOG.md has no section $version" >&2; exit 1; }

# Runs a command as a user would, with nothing of this clone on the path.
as_user() {
  (cd "$work" && env -u PYTHONPATH -u PYSPARK_PYTHON PATH="$work/clean/bin:$PATH" "$@")
}

for file in "$work"/dist/*.whl "$work"/dist/*.tar.gz; do
  echo "== $(basename "$file")"
  rm -rf "$work/clean"
  "$python" -m venv "$work/clean"
  "$work/clean/bin/pip" install --quiet --constraint "$work/constraints" "$file"
  "$work/clean/bin/pip" check
  as_user braided --version
  as_user braided doctor --join
  as_user python -c 'import braided.ui.dashboard_page as page; page.whole_page([], ""); print("the page is in the package")'
  as_user python -c 'import braided, sys; assert not {"pyspark", "numba", "duckdb"} & set(sys.modules); print("import braided loads little")'
  code=0
  as_user braided demo || code=$?
  test "$code" = 2 || { echo "package.sh: the demo should report that it needs an extra" >&2; exit 1; }
done
"$work/clean/bin/pip" install --quiet --constraint "$work/constraints" "$(ls "$work"/dist/*.whl)[all]"
as_user braided demo --theta --out "$work/demo"
echo "== braided $version: wheel, sdist and extras work on $("$python" --version)"
if [ -n "$kept" ]; then
  cp "$work"/dist/* "$kept"
  echo "== in $kept: $(cd "$kept" && echo *)"
fi
