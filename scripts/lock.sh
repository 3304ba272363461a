#!/usr/bin/env bash
# Writes the lock files from pyproject.toml (needs uv); `scripts/lock.sh --upgrade` takes newer versions.
#
#   requirements.lock        what braided, its demo and its checks import
#   requirements-build.lock  what builds braided, and PySpark, which is published as source only
#   requirements-site.lock   what builds the documentation's site, and drives a browser in a slow test
#
# Names, versions and hashes for Python 3.11 to 3.14, and no address: the reader's index serves them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compile() {
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-emit-find-links --custom-compile-command scripts/lock.sh "$@"
}

compile "$@" --extra demo --group dev pyproject.toml --output-file requirements.lock
compile "$@" --group build --constraints requirements.lock --output-file requirements-build.lock
compile "$@" --group site --group browser --constraints requirements.lock --output-file requirements-site.lock

if grep -n '://' requirements.lock requirements-build.lock requirements-site.lock; then
  echo "lock.sh: a lock file names a host" >&2
  exit 1
fi
