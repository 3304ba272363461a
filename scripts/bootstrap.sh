# shellcheck shell=bash
# Prepares Java and .venv for ./demo and ./check: source this file, then call `bootstrap`.
#
#   bootstrap --java     the locked packages and a Java 17+ runtime, as Spark needs
#   bootstrap --no-java  the locked packages only
#
# Packages come from requirements*.lock, checked by hash. Java and python3-venv come from apt-get where
# the user may run it (root, or sudo without a password); otherwise one line says what to install.
# Set PYTHON to choose an interpreter. Nothing outside the repository is written but package caches.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
VENV="$ROOT/.venv"

say() { printf 'braided: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command silently; shows what it printed only when it fails.
quietly() {
  local output status=0
  output="$("$@" 2>&1 </dev/null)" || status=$?
  [ "$status" -eq 0 ] || printf '%s\n' "$output" >&2
  return "$status"
}

# --- Java -------------------------------------------------------------------------------------------

java_suits() {
  local major
  major="$("$1" -version 2>&1 </dev/null | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)" || return 1
  [ "${major:-0}" -ge 17 ]
}

# Leaves JAVA_HOME such that Spark's launcher starts a suitable Java.
find_java() {
  local home
  if [ -n "${JAVA_HOME:-}" ] && java_suits "$JAVA_HOME/bin/java"; then return 0; fi
  unset JAVA_HOME
  if have java && java_suits java; then return 0; fi
  for home in /usr/lib/jvm/*; do
    if [ -x "$home/bin/java" ] && java_suits "$home/bin/java"; then
      export JAVA_HOME="$home"
      return 0
    fi
  done
  return 1
}

apt_candidate() {
  LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v '(none)'
}

# The default runtime is versioned 2:1.<major>-<revision>; Ubuntu 22.04's is still 11.
java_package() {
  local default package
  default="$(apt_candidate default-jre-headless | sed -n 's/^\([0-9]*:\)*1\.\([0-9]*\).*/\2/p')" || default=""
  if [ "${default:-0}" -lt 17 ]; then
    for package in openjdk-21-jre-headless openjdk-17-jre-headless; do
      if apt_candidate "$package" >/dev/null; then
        echo "$package"
        return 0
      fi
    done
  fi
  echo default-jre-headless
}

# --- Python -----------------------------------------------------------------------------------------

# An executable that runs: a version manager's shim may be on PATH and still refuse.
have_uv() { have uv && uv --version >/dev/null 2>&1; }

# The locked packages have wheels for these versions (PySpark itself is pure Python).
python_suits() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1
}

# Debian keeps ensurepip, and with it `python -m venv`, in a package of its own.
python_makes_venvs() { have_uv || "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Prints the interpreter to use: the first that can make an environment, else the first that suits.
find_python() {
  local name fallback=""
  for name in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.14 python3.11; do
    python_suits "$name" || continue
    if python_makes_venvs "$name"; then
      echo "$name"
      return 0
    fi
    fallback="${fallback:-$name}"
  done
  echo "$fallback"
}

venv_package() { "$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'; }

# --- what the machine lacks -------------------------------------------------------------------------

# Sets AS_ROOT to the prefix that gives a command root's rights, or fails.
can_install() {
  have apt-get || return 1
  AS_ROOT=(env)
  [ "$(id -u)" -eq 0 ] || { sudo -n true 2>/dev/null && AS_ROOT=(sudo -n env); }
}

# Sets PACKAGES to the Debian packages without which neither Spark nor the environment can start.
list_missing() {
  local need_java="$1" need_venv="$2"
  PACKAGES=()
  if [ "$need_venv" = yes ] && ! python_makes_venvs "$INTERPRETER"; then
    PACKAGES+=("$(venv_package "$INTERPRETER")")
  fi
  if [ "$need_java" = yes ] && ! find_java; then PACKAGES+=("$(java_package)"); fi
}

install_missing() {
  list_missing "$@"
  [ "${#PACKAGES[@]}" -gt 0 ] || return 0
  if can_install; then
    say "installing ${PACKAGES[*]} with apt-get"
    quietly "${AS_ROOT[@]}" apt-get update -qq || true
    list_missing "$@"
    quietly "${AS_ROOT[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends -o DPkg::Lock::Timeout=300 "${PACKAGES[@]}" || true
    list_missing "$@"
    [ "${#PACKAGES[@]}" -gt 0 ] || return 0
  fi
  die "please run 'sudo apt-get install ${PACKAGES[*]}', then try again"
}

# --- the environment --------------------------------------------------------------------------------

fingerprint() { (cd "$ROOT" && printf '%s ' "$PWD" && cat "$@" | sha256sum); }
locked_state() { fingerprint requirements-build.lock requirements.lock; }
project_state() { fingerprint pyproject.toml; }

recorded() { cat "$VENV/.braided-$1" 2>/dev/null || true; }

# A Debian upgrade may put another Python behind .venv/bin/python: asking for the package tells.
env_works() {
  "$VENV/bin/python" -I -c 'from importlib.util import find_spec as f; exit(not f("braided"))' 2>/dev/null
}

env_is_current() {
  [ "$(recorded locked)" = "$(locked_state)" ] && [ "$(recorded project)" = "$(project_state)" ] && env_works
}

# pip's own sources decide where packages come from; scratch files stay off a small /tmp.
pip_do() (
  cd "$ROOT" || exit
  mkdir -p "$VENV/scratch"
  export TMPDIR="$VENV/scratch"
  if [ ! -w "${HOME:-/nonexistent}" ]; then export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$VENV/scratch}"; fi
  if have_uv; then
    # Every Spark task may start a Python process; without byte code each would compile pandas and numba anew.
    UV_COMPILE_BYTECODE=1 quietly uv pip "$@" --python "$VENV/bin/python"
  else
    PIP_USE_PEP517=1 quietly "$VENV/bin/python" -m pip --quiet --no-input --disable-pip-version-check "$@"
  fi
)

make_venv() {
  rm -rf "$VENV"
  if have_uv; then
    quietly uv venv --quiet --no-project --no-cache --python "$INTERPRETER" "$VENV"
  else
    quietly "$INTERPRETER" -m venv "$VENV"
  fi
}

# PySpark is built from its source, which pip has checked by hash, while the others are fetched: most of the time is
# one core's. Its wheel is not compressed, being unpacked at once, and byte code is made by all cores at the end.
install_with_pip() {
  local part="$VENV/scratch" building
  mkdir -p "$part"
  awk -v part="$part" '/^[^ #]/ { name = /^pyspark==/ ? "spark" : "others" } { print > (part "/" name ".lock") }' \
    name=others "$ROOT/requirements.lock"
  printf '[bdist_wheel]\ncompression = stored\n' >"$part/setup.cfg"
  DIST_EXTRA_CONFIG="$part/setup.cfg" pip_do wheel --require-hashes --no-deps --no-build-isolation \
    --wheel-dir "$part" -r "$part/spark.lock" &
  building=$!
  pip_do install --require-hashes --no-deps --no-compile -r "$part/others.lock" || { kill "$building"; return 1; }
  wait "$building" &&
    pip_do install --no-deps --no-compile "$part"/pyspark-*.whl &&
    quietly "$VENV/bin/python" -m compileall -q -j 0 -x 'lib2to3|/tests?/' "$VENV/lib"
}

# PySpark and this project are built from source. Their build tools are locked too, and come first.
install_locked() {
  say "installing the locked packages into .venv (0.5 GB to fetch, some minutes)"
  make_venv &&
    pip_do install --require-hashes -r requirements-build.lock &&
    if have_uv; then
      pip_do install --require-hashes --no-build-isolation -r requirements.lock
    else
      install_with_pip
    fi &&
    quietly "$VENV/bin/python" "$ROOT/scripts/zip_bytecode.py" &&
    locked_state >"$VENV/.braided-locked"
}

install_project() {
  pip_do install --no-deps --no-build-isolation -e . &&
    pip_do check &&
    rm -rf "$VENV/scratch" &&
    project_state >"$VENV/.braided-project"
}

# A new pyproject.toml alone means installing the project again; anything else, a new environment.
update_env() {
  if [ "$(recorded locked)" = "$(locked_state)" ] && env_works && { have_uv || have "$VENV/bin/pip"; }; then
    say "installing braided into .venv again: pyproject.toml has changed"
  else
    install_locked || die "could not install the locked packages: see above"
  fi
  install_project || die "could not install braided into .venv: see above"
}

bootstrap() {
  local need_java=no need_venv=no
  if [ "$1" = --java ]; then need_java=yes; fi
  # Another Spark or Python path in the user's shell would shadow what is locked here.
  unset PYTHONHOME PYTHONPATH SPARK_HOME SPARK_CONF_DIR
  PATH="${PATH//"$VENV/bin:"/}" # an activated .venv is no base for its own successor

  INTERPRETER=""
  if ! env_is_current; then
    need_venv=yes
    INTERPRETER="$(find_python)"
    [ -n "$INTERPRETER" ] || die "please install Python 3.11, 3.12, 3.13 or 3.14, then try again"
  fi
  install_missing "$need_java" "$need_venv"

  if [ "$need_venv" = yes ]; then
    # One at a time: a second run waits here, then finds the work done.
    exec 9<"$ROOT/pyproject.toml"
    if have flock; then flock 9; fi
    env_is_current || update_env
    exec 9<&-
  fi

  export VIRTUAL_ENV="$VENV" PATH="$VENV/bin:$PATH" PYSPARK_PYTHON="$VENV/bin/python"
  # A fresh machine's host name may not resolve, and Spark does not start without an address.
  export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
}
