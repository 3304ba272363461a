"""What a predicate may not do: call functions that run code of any class, which Spark's SQL has.

A predicate is trusted text all the same: left to Spark, it may read tables and call whatever the session knows.
"""

from __future__ import annotations

import re

from braided.errors import OptionError

_FORBIDDEN = "java_method|try_reflect|reflect"
# A name may be quoted. IDENTIFIER('refl' || 'ect')(...) calls a function whose name is put together.
_CALL = re.compile(rf"(?<!\w)({_FORBIDDEN}|identifier)(?!\w)[`\"]?\s*\(", re.IGNORECASE)
_NAME = re.compile(rf"(?<!\w)({_FORBIDDEN}|identifier)(?!\w)", re.IGNORECASE)
_COMMENT = re.compile(r"/\*|--")


def refuse_code(where: str) -> None:
    """Raise if a predicate calls a function that runs code.

    Text in quotes counts too, since what a quote ends depends on Spark's settings; and where there are comments, which
    may stand between a name and its bracket, so does the name alone.

    >>> refuse_code("reflect('C', 'm') = 1")
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: where="reflect('C', 'm') = 1": reflect() may run any code and is refused; leave it out
    >>> refuse_code("l.reflect = 'reflect'")
    """
    call = _CALL.search(where) or (_COMMENT.search(where) and _NAME.search(where))
    if call:
        raise OptionError(f"where={where!r}: {call[1].lower()}() may run any code and is refused; leave it out")
