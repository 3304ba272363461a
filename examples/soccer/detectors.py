"""The hierarchy of Figure 1 in "Dynamic Low-Latency Distributed Event Processing of Sensor Data Streams".

```
 player, ball -> near, not near -\\
        ball -> ball accelerates --> hit -> pass -> double pass
                                      \\--> shot on goal <- ball
```

Positions are in metres from the centre of the pitch, goals at x = -52.5 and x = 52.5.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import braided

GOAL_X, POST_Y, BAR_Z = 52.5, 3.66, 2.44
BALL = 200


def micros(rows: pa.RecordBatch, column: str = "time") -> np.ndarray:
    """Return times as whole numbers."""
    return rows[column].cast(pa.int64()).to_numpy()


def moments(rows: pa.RecordBatch, values: Any) -> pa.Array:
    """Return whole numbers as times of the same kind as those of the events."""
    return pa.array(values, pa.int64()).cast(rows.schema.field("time").type)


class Positions(braided.Detector):
    """The positions of the ball, or of the players, where all come in one stream."""

    subscribes = "position"
    schema = "time timestamp, object int, team string, x float, y float, z float"
    delay = "0 seconds"

    def __init__(self, of: str) -> None:
        self.publishes = of

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
        is_ball = events["object"].to_numpy() == BALL
        rows = events.filter(pa.array(is_ball if self.publishes == "ball" else ~is_ball))
        return rows.select(["time", "object", "team", "x", "y", "z"])


class Proximity(braided.Detector):
    """Which players are within reach of the ball; columns at a time."""

    subscribes = ("ball", "player")
    delay = "0 seconds"

    def __init__(self, reach: float = 1.6) -> None:
        self.reach = reach
        self.ball = [0.0, 0.0]
        self.inside: list[int] = []

    def distances(self, events: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the players' rows, and how far each is from where the ball was last."""
        is_ball = np.asarray(events["type"]) == "ball"
        places = np.arange(len(events))
        last = np.maximum.accumulate(np.where(is_ball, places, -1))
        xy = np.stack([events["x"].to_numpy(), events["y"].to_numpy()]).astype(np.float64)
        ball = np.where(last >= 0, xy[:, last], np.array(self.ball)[:, None])
        self.ball = ball[:, -1].tolist()
        players = places[~is_ball]
        return players, np.hypot(*(xy - ball))[players]

    def save(self) -> Any:
        return {"ball": self.ball, "inside": self.inside}

    def load(self, state: Any) -> None:
        self.ball, self.inside = state["ball"], state["inside"]


class Near(Proximity):
    """A player is near the ball: an event for every position while that lasts."""

    publishes = "near"
    schema = "time timestamp, player int, team string, distance double"

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
        players, distance = self.distances(events)
        inside = distance < self.reach
        rows = events.take(pa.array(players[inside]))
        names = ["time", "player", "team", "distance"]
        columns = [rows["time"], rows["object"], rows["team"], pa.array(distance[inside])]
        return pa.RecordBatch.from_arrays(columns, names)


class NotNear(Proximity):
    """A player is no longer near the ball: one event."""

    publishes = "not_near"
    schema = "time timestamp, player int"

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
        players, distance = self.distances(events)
        inside = distance < self.reach
        objects = events["object"].to_numpy()[players]
        order = np.argsort(objects, kind="stable")
        first = np.diff(objects[order], prepend=-1) != 0
        before = np.where(first, np.isin(objects[order], self.inside), np.roll(inside[order], 1))
        left = np.zeros(len(players), np.bool_)
        left[order] = before & ~inside[order]
        last = np.append(first[1:], True) if len(order) else first
        seen, now = objects[order][last], inside[order][last]
        self.inside = sorted({*self.inside} - {*seen.tolist()} | {*seen[now].tolist()})
        rows = events.take(pa.array(players[left]))
        return pa.RecordBatch.from_arrays([rows["time"], rows["object"]], ["time", "player"])


class BallAccelerates(braided.Detector):
    """The ball's speed or direction changes; that is known one position later, which is the detection delay."""

    subscribes = "ball"
    publishes = "acceleration"
    schema = "time timestamp, change double"

    def __init__(self, change: float = 3.0) -> None:
        self.change = change
        self.last: list[list[float]] = []

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        rows = np.stack([micros(events), *(events[name].to_numpy() for name in "xyz")], axis=1).astype(np.float64)
        rows = np.concatenate([np.array(self.last).reshape(-1, 4), rows])
        self.last = rows[-2:].tolist()
        if len(rows) < 3:
            return None
        speed = np.diff(rows[:, 1:], axis=0) / np.maximum(np.diff(rows[:, 0]), 1)[:, None] * 1e6
        change = np.linalg.norm(np.diff(speed, axis=0), axis=1)
        at = np.flatnonzero(change > self.change)
        times = rows[:, 0].astype(np.int64)
        return pa.record_batch(
            {"time": moments(events, times[at + 1]), "change": change[at], "at": moments(events, times[at + 2])}
        )

    def save(self) -> Any:
        return self.last

    def load(self, state: Any) -> None:
        self.last = state


class Hit(braided.Detector):
    """A player hits the ball: it accelerates while the player is near, and nearer than all others."""

    subscribes = ("near", "not_near", "acceleration")
    publishes = "hit"
    schema = "time timestamp, player int, team string"
    delay = "0 seconds"

    def __init__(self) -> None:
        self.near: dict[str, tuple[float, str]] = {}

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        found: list[tuple[int, int, str]] = []
        columns = (events[name].to_pylist() for name in ("type", "player", "team", "distance"))
        for time, type_, player, team, distance in zip(micros(events).tolist(), *columns, strict=True):
            if type_ == "near":
                self.near[str(player)] = distance, team
            elif type_ == "not_near":
                self.near.pop(str(player), None)
            elif self.near:
                nearest = min(self.near, key=lambda name: (self.near[name][0], name))
                found.append((time, int(nearest), self.near[nearest][1]))
        if not found:
            return None
        times, players, teams = zip(*found, strict=True)
        return pa.record_batch({"time": moments(events, times), "player": players, "team": teams})

    def save(self) -> Any:
        return self.near

    def load(self, state: Any) -> None:
        self.near = {player: tuple(known) for player, known in state.items()}


class Pass(braided.Detector):
    """Two players of a team hit the ball one after the other; dated when the first did, known when the second does."""

    subscribes = "hit"
    publishes = "pass"
    schema = "time timestamp, passer int, receiver int, team string, received timestamp"

    def __init__(self, longest: int = 4) -> None:
        self.longest, self.delay = longest * 1_000_000, f"{longest} seconds"
        self.last: list[Any] | None = None

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        found = []
        for time, player, team in zip(
            micros(events).tolist(), events["player"].to_pylist(), events["team"].to_pylist(), strict=True
        ):
            if self.last is not None:
                before, passer, of = self.last
                if player != passer and team == of and time - before <= self.longest:
                    found.append((before, passer, player, team, time))
            self.last = [time, player, team]
        if not found:
            return None
        times, passers, receivers, teams, received = zip(*found, strict=True)
        return pa.record_batch(
            {
                "time": moments(events, times),
                "passer": passers,
                "receiver": receivers,
                "team": teams,
                "received": moments(events, received),
                "at": moments(events, received),
            }
        )

    def save(self) -> Any:
        return self.last

    def load(self, state: Any) -> None:
        self.last = state


DOUBLE_PASS = braided.Pattern(
    "double_pass",
    subscribes="pass",
    pattern="THERE BACK",
    define={"BACK": "passer = THERE.receiver AND receiver = THERE.passer"},
    measures={"time": "THERE.time", "one": "THERE.passer", "two": "THERE.receiver", "ended": "BACK.received"},
    within="8 seconds",
    after="skip to next row",
)


class ShotOnGoal(braided.Detector):
    """Soon after a hit the ball flies fast towards a goal, and would cross the line between the posts."""

    subscribes = ("ball", "hit")
    publishes = "shot"
    schema = "time timestamp, player int, team string, speed double"
    delay = "400 milliseconds"

    def __init__(self, fast: float = 20.5, after: int = 200_000, wide: float = 1.5) -> None:
        self.fast, self.after, self.wide = fast, after, wide
        self.ball: list[list[float]] = []
        self.hits: list[list[Any]] = []

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        is_ball = np.asarray(events["type"]) == "ball"
        rows = np.stack([micros(events), *(events[name].to_numpy(zero_copy_only=False) for name in "xyz")], axis=1)
        ball = np.concatenate([np.array(self.ball, np.float64).reshape(-1, 4), rows[is_ball].astype(np.float64)])
        hit = events.filter(pa.array(~is_ball))
        columns = (micros(hit).tolist(), hit["player"].to_pylist(), hit["team"].to_pylist())
        self.hits += [list(one) for one in zip(*columns, strict=True)]
        waits, found = [], []
        for time, player, team in self.hits:
            # The first position after the hit, and the first one long enough after it.
            start, end = np.searchsorted(ball[:, 0], [time + 1, time + self.after])
            if end == len(ball):
                waits.append([time, player, team])
                continue
            speed = self._towards_goal(ball[start], ball[end])
            if speed is not None and ball[end, 0] - time <= 400_000:
                found.append((time, player, team, speed, int(ball[end, 0])))
        self.hits = waits
        oldest = min([time for time, *_ in waits], default=ball[-1, 0] if len(ball) else 0)
        self.ball = ball[ball[:, 0] >= oldest].tolist()
        if not found:
            return None
        times, players, teams, speeds, at = zip(*found, strict=True)
        return pa.record_batch(
            {
                "time": moments(events, times),
                "player": players,
                "team": teams,
                "speed": speeds,
                "at": moments(events, at),
            }
        )

    def _towards_goal(self, one: np.ndarray, two: np.ndarray) -> float | None:
        """Return how fast the ball flies from one position to another, if that leads into a goal."""
        seconds = (two[0] - one[0]) / 1e6
        x, y, z = (two[1:] - one[1:]) / max(seconds, 1e-6)
        speed = float(np.hypot(x, y))
        left = (np.copysign(GOAL_X, x) - two[1]) / x if x else np.inf
        if speed < self.fast or not 0 <= left < 2:
            return None
        high = two[3] + z * left - 4.9 * left * left
        return speed if abs(two[2] + y * left) < POST_Y + self.wide and high < BAR_Z + self.wide else None

    def save(self) -> Any:
        return {"ball": self.ball, "hits": self.hits}

    def load(self, state: Any) -> None:
        self.ball, self.hits = state["ball"], state["hits"]


def hierarchy() -> list[Any]:
    """Return all detectors; their order does not matter."""
    return [ShotOnGoal(), DOUBLE_PASS, Pass(), Hit(), BallAccelerates(), NotNear(), Near()]
