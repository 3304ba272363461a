"""Reading what a user wrote about lateness and idleness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from braided.durations import format_duration, parse_duration
from braided.errors import OptionError
from braided.time.lateness import Lateness

JOIN_FLOOR = 10_000_000
"""The least lateness that a join learns: ten seconds. It costs a join state, not time (docs/concepts/time.md)."""


def resolve_rule(lateness: Any, floor: int) -> int | Lateness:
    """Return a stream's lateness in microseconds, or how it is learned; ``"auto"`` learns it, never below a floor.

    >>> resolve_rule("5 seconds", 0), resolve_rule("auto", 0).floor
    (5000000, '0 us')
    """
    if isinstance(lateness, str) and lateness == "auto":
        return learned_above(Lateness(floor="0 seconds"), floor)
    if isinstance(lateness, Lateness):
        return lateness
    micros = parse_duration(lateness, "lateness")
    if micros < 0:
        raise OptionError(f"lateness={lateness!r}: negative; write '0 seconds' or more")
    return micros


def resolve_rules(lateness: Any, streams: int, floor: int = JOIN_FLOOR) -> tuple[int | Lateness | None, ...]:
    """Return the lateness of each stream, None where the user left it open; ``"auto"`` is never below the floor."""
    parts = tuple(lateness) if isinstance(lateness, (tuple, list)) else (lateness,) * streams
    if len(parts) != streams:
        wanted = {1: "", 2: " or a pair (left, right)"}.get(streams, f", or one for each of {streams} streams")
        raise OptionError(f"lateness={lateness!r}: write one duration{wanted}")
    return tuple(None if part is None else resolve_rule(part, floor) for part in parts)


def one_lateness(lateness: Any) -> int | Lateness | None:
    """Return the lateness of an operator's only input, None where the user left it open; ``"auto"`` has no floor."""
    if isinstance(lateness, list | tuple):
        raise OptionError(f"lateness={lateness!r}: write one for the input")
    return None if lateness is None else resolve_rule(lateness, 0)


def learned_above(rule: Lateness, floor: int) -> Lateness:
    """Return a rule with its floor, and where need be its ceiling, raised to at least `floor` microseconds."""
    floor = max(floor, rule.floor_us)
    ceiling = rule.ceiling if rule.ceiling_us >= floor else f"{floor} us"
    return replace(rule, floor=format_duration(floor) if floor else "0 us", ceiling=ceiling)


def least(rule: int | Lateness) -> int:
    """Return the least that a lateness may be."""
    return rule if isinstance(rule, int) else rule.floor_us


def how_learned(rules: Sequence[int | Lateness]) -> tuple[Lateness | None, ...]:
    """Return the rules of those that are learned."""
    return tuple(None if isinstance(rule, int) else rule for rule in rules)


def resolve_idle(idle: Any) -> int | None:
    """Return after how many microseconds a silent stream counts as idle; None for never."""
    if idle is None:
        return None
    micros = parse_duration(idle, "idle")
    if micros <= 0:
        raise OptionError(f"idle={idle!r}: write a duration above 0, or None for streams that never count as idle")
    return micros
