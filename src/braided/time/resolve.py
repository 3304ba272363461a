"""Parse the options `lateness` and `idle`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from braided.durations import format_duration, parse_duration
from braided.errors import OptionError
from braided.time.lateness import Lateness

JOIN_FLOOR = 10_000_000
"""The smallest lateness that a join learns: ten seconds. It costs state, but no delay (docs/concepts/time.md)."""


def resolve_rule(lateness: Any, floor: int) -> int | Lateness:
    """Return a stream's lateness in microseconds, or how it is learned; ``"auto"`` learns it with a floor.

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
    """Return the lateness of each stream, None if the user set none; ``"auto"`` is never below the floor."""
    parts = tuple(lateness) if isinstance(lateness, (tuple, list)) else (lateness,) * streams
    if len(parts) != streams:
        wanted = {1: "", 2: " or a pair (left, right)"}.get(streams, f", or one for each of {streams} streams")
        raise OptionError(f"lateness={lateness!r}: write one duration{wanted}")
    return tuple(None if part is None else resolve_rule(part, floor) for part in parts)


def one_lateness(lateness: Any) -> int | Lateness | None:
    """Return the lateness of an operator's only input, None if the user set none; ``"auto"`` has no floor."""
    if isinstance(lateness, list | tuple):
        raise OptionError(f"lateness={lateness!r}: there is only one input; write one duration")
    return None if lateness is None else resolve_rule(lateness, 0)


def learned_above(rule: Lateness, floor: int) -> Lateness:
    """Return a rule whose floor and ceiling are raised to at least `floor` microseconds."""
    floor = max(floor, rule.floor_us)
    ceiling = rule.ceiling if rule.ceiling_us >= floor else f"{floor} us"
    return replace(rule, floor=format_duration(floor) if floor else "0 us", ceiling=ceiling)


def least(rule: int | Lateness) -> int:
    """Return the smallest possible lateness."""
    return rule if isinstance(rule, int) else rule.floor_us


def are_fixed(rules: Sequence[int | Lateness]) -> bool:
    """Whether no lateness is learned."""
    return all(isinstance(rule, int) for rule in rules)


def how_learned(rules: Sequence[int | Lateness]) -> tuple[Lateness | None, ...]:
    """Return the rule of each learned lateness, and None for a fixed one."""
    return tuple(None if isinstance(rule, int) else rule for rule in rules)


def resolve_idle(idle: Any) -> int | None:
    """Return after how many microseconds a silent stream is idle; None means never."""
    if idle is None:
        return None
    micros = parse_duration(idle, "idle")
    if micros <= 0:
        raise OptionError(
            f"idle={idle!r}: not above 0; write a longer duration, or None for streams that are never idle"
        )
    return micros
