"""The descriptions of options in docstrings of functions: written once, in the specs, and shown in each function."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from braided.operators.shared_options import RUNTIME
from braided.operators.spec import Spec

P = ParamSpec("P")
R = TypeVar("R")
_MARK = "    {options}\n"


def documented(spec: type[Spec]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Put the descriptions of all options where a function's docstring has the line ``{options}``."""

    def put(function: Callable[P, R]) -> Callable[P, R]:
        descriptions = {**RUNTIME, **spec.descriptions()}
        lines = ["Parameters", "----------"]
        for name in inspect.signature(function).parameters:
            if name in descriptions:
                lines += [
                    f"{name}:",
                    *textwrap.wrap(descriptions[name], 112, initial_indent="    ", subsequent_indent="    "),
                ]
        text = function.__doc__ or ""
        if _MARK in text:  # absent where Python runs without docstrings
            function.__doc__ = text.replace(_MARK, textwrap.indent("\n".join(lines), "    ") + "\n")
        return function

    return put
