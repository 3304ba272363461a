"""The order of a hierarchy of detectors, found from their subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from braided.errors import OptionError


class Subscriber(Protocol):
    """Something that publishes one event type and subscribes to others."""

    @property
    def publishes(self) -> str:
        """The type that it publishes."""

    @property
    def subscribes(self) -> str | Sequence[str]:
        """The types that it sees."""


def subscriptions(of: Subscriber) -> tuple[str, ...]:
    """Return the types that a detector sees."""
    return (of.subscribes,) if isinstance(of.subscribes, str) else tuple(of.subscribes)


def arrange(streams: Sequence[str], detectors: Sequence[Subscriber]) -> list[int]:
    """Return the numbers of the detectors, each after those whose events it sees; refuse cycles and unknown types."""
    published = [detector.publishes for detector in detectors]
    for detector in detectors:
        for type_ in subscriptions(detector):
            if type_ not in published and type_ not in streams:
                raise OptionError(
                    f"detector {detector.publishes!r}: subscribes to {type_!r}, which no detector publishes; write "
                    f"one of {', '.join(sorted({*published, *streams}))}"
                )
    order: list[int] = []
    known = set(streams)
    while len(order) < len(detectors):
        ready = [
            number
            for number, detector in enumerate(detectors)
            if number not in order and known.issuperset(subscriptions(detector))
        ]
        if not ready:
            cycle = " -> ".join(_cycle([detectors[n] for n in range(len(detectors)) if n not in order], known))
            raise OptionError(
                f"detectors: {cycle} is a cycle; a detector must not receive events that result from its own"
            )
        order += ready
        # A type is known once all detectors that publish it have been placed.
        waiting = {published[number] for number in range(len(detectors)) if number not in order}
        known |= {published[number] for number in order} - waiting
    return order


def _cycle(detectors: Sequence[Subscriber], known: set[str]) -> list[str]:
    """Return the names of a cycle in the direction of the events; the first one is repeated at the end."""
    path = [detectors[0].publishes]
    while True:
        at = next(detector for detector in detectors if detector.publishes == path[-1] and _unknown(detector, known))
        path.append(_unknown(at, known)[0])
        if path[-1] in path[:-1]:
            return path[path.index(path[-1]) :][::-1]


def _unknown(detector: Subscriber, known: set[str]) -> list[str]:
    return [type_ for type_ in subscriptions(detector) if type_ not in known]
