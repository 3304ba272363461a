"""A predicate must not call the functions of Spark SQL that run code of any class.

A predicate is still trusted text: if Spark evaluates it, it can read tables and call every function of the session.
"""

from __future__ import annotations

import re

from braided.errors import OptionError

_FORBIDDEN = "java_method|try_reflect|reflect"
# A name may be quoted. IDENTIFIER('refl' || 'ect')(...) calls a function whose name is computed.
_CALL = re.compile(rf"(?<!\w)({_FORBIDDEN}|identifier)(?!\w)[`\"]?\s*\(", re.IGNORECASE)
_NAME = re.compile(rf"(?<!\w)({_FORBIDDEN}|identifier)(?!\w)", re.IGNORECASE)
_COMMENT = re.compile(r"/\*|--")


def refuse_code(where: str) -> None:
    """Raise if a predicate calls a function that runs code.

    Text in quotes is checked too, because Spark's settings decide where a quote ends. If there are comments, the name
    alone is refused, because a comment may be between a name and its bracket.

    >>> refuse_code("reflect('C', 'm') = 1")
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: where="reflect('C', 'm') = 1": reflect() may run any code and is refused; leave it out
    >>> refuse_code("l.reflect = 'reflect'")
    """
    call = _CALL.search(where) or (_COMMENT.search(where) and _NAME.search(where))
    if call:
        raise OptionError(f"where={where!r}: {call[1].lower()}() may run any code and is refused; leave it out")
