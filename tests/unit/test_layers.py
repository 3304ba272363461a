"""The layers of the package: an import points only to a layer further down, and only the outer ones know of Spark."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import braided

ROOT = Path(braided.__file__).parent

# From the bottom to the top. Packages of one line do not import each other.
LAYERS = (
    ("errors", "compiled", "version", "picture", "charts"),
    ("sequence",),
    ("expressions",),
    ("durations",),
    ("typing",),
    ("storage",),
    ("routing", "time"),
    ("eviction", "balance"),
    ("runtime",),
    ("operators",),
    ("jobs", "inspection"),
    ("plan", "ui"),
    ("sqltext",),
    ("local", "spark"),
    ("fleet",),
    ("sim",),
    ("api", "daemon", "kafka", "testing"),
    ("workloads",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
KNOW_SPARK = ("spark/", "fleet/hosting/", "cli/", "daemon.py")


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@cache
def _imports(path: Path) -> set[str]:
    """Return the modules that a file imports at run time, anywhere in it."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if _is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        pending += ast.iter_child_nodes(node)
    return found


def _edges() -> set[tuple[str, str, str]]:
    """Return (file, package, package that it imports) for every import of one package by another."""
    edges = set()
    for path in sorted(ROOT.rglob("*.py")):
        home = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for name in _imports(path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0] or "api"  # `import braided` is the public API
            if package == "braided" and home not in {other, "__init__"}:
                edges.add((str(path.relative_to(ROOT)), home, other))
    return edges


def test_every_import_points_to_a_lower_layer() -> None:
    wrong = [
        f"{file}: {home} may not import {other}"
        for file, home, other in sorted(_edges())
        if LEVEL.get(other, -1) >= LEVEL[home]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_outer_layers_know_of_spark() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(KNOW_SPARK)
        for name in _imports(path)
        if name.split(".")[0] in ("pyspark", "py4j")
    ]
    assert not wrong, "\n".join(wrong)


def test_one_module_looks_into_the_jvm() -> None:
    inside = re.compile(r"_jdf|_jvm|_jsq|_jsparkSession|_jsc\b|py4j")
    found = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if inside.search(path.read_text())}
    assert found == {"spark/catalyst.py", "cli/peer_command.py"}  # the latter silences py4j's log


def test_every_package_is_in_a_layer_and_none_has_the_name_of_a_public_function() -> None:
    packages = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert packages <= set(LEVEL)
    functions = {name for name in braided.__all__ if inspect.isfunction(getattr(braided, name))}
    assert not packages & functions
    assert importlib.import_module("braided.operators.join.runs").Run is not None


def test_the_guide_lists_every_package_in_order_of_imports() -> None:
    table = (ROOT.parents[1] / "CONTRIBUTING.md").read_text().partition("| folder | content |")[2]
    listed = re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)
    packages = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert set(listed) == packages
    assert [LEVEL[name] for name in listed] == sorted(LEVEL[name] for name in listed)


def test_the_processor_loads_nothing_that_a_query_does_not_need_to_start() -> None:
    """Spark starts a Python process for each operator of a query, to ask for its state variables."""
    code = "import sys, braided.spark.processor; print([m for m in ('numba', 'numpy', 'pandas', 'pyarrow') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
