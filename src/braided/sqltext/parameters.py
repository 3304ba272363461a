"""Replace the parameter markers of a text, ``:name`` and ``?``, by literals, because the text is parsed many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot.tokens import TokenType

from braided.errors import OptionError
from braided.sqltext.words import Words


def fill_markers(text: str, literals: Mapping[str, str] | Sequence[str]) -> str:
    """Return a text with literals instead of its markers: by name, or in order for question marks.

    >>> fill_markers("SELECT ':k' FROM a WHERE k = :k AND n -:n > 0", {"k": "'x'", "n": "-1"})
    "SELECT ':k' FROM a WHERE k =  'x'  AND n - -1  > 0"
    """
    words = Words(text)
    by_name = isinstance(literals, Mapping)
    changes, used = [], 0
    for at in range(len(words)):
        if words.is_(at, TokenType.PLACEHOLDER):
            if isinstance(literals, Mapping) or used == len(literals):
                raise OptionError(
                    f"args=: {words.place(at)}: the text has more question marks than values"
                    if not by_name
                    else f"args=: {words.place(at)}: this question mark has no name; pass a list of values"
                )
            changes.append((words.start(at), words.stop(at), literals[used]))
            used += 1
        elif words.is_(at, TokenType.COLON) and _is_marker(words, at):
            name = str(words.name(at + 1))
            if not isinstance(literals, Mapping) or name not in literals:
                known = ", ".join(literals) if isinstance(literals, Mapping) else "a list, for question marks"
                raise OptionError(f"args=: {words.place(at)}: no value for :{name}; args has {known or 'none'}")
            changes.append((words.start(at), words.stop(at + 1), literals[name]))
    if not by_name and used < len(literals):
        raise OptionError(f"args=: {len(literals)} values for {used} question marks; pass one value for each")
    for start, stop, literal in reversed(changes):
        text = f"{text[:start]} {literal} {text[stop:]}"
    return text


def _is_marker(words: Words, at: int) -> bool:
    """Whether the name of a parameter follows directly after a colon."""
    return words.name(at + 1) is not None and words.start(at + 1) == words.stop(at)
