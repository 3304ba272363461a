"""A generated match with known events: 22 players on smooth paths, and a ball that goes from one to the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from detectors import BALL


@dataclass
class Truth:
    """What happened: times in microseconds."""

    passes: list[tuple[int, int, int]] = field(default_factory=list)
    double_passes: list[tuple[int, int, int]] = field(default_factory=list)
    shots: list[tuple[int, int]] = field(default_factory=list)


def generate(seconds: int, seed: int = 0, hz: int = 25) -> tuple[dict[str, pa.Table], Truth]:
    """Return the positions of players and of the ball, so many a second, and what happened."""
    rng = np.random.default_rng(seed)
    frames, step = np.arange(seconds * hz), 1_000_000 // hz
    objects = np.array([*range(1, 12), *range(101, 112)])
    homes = np.stack([np.tile(np.linspace(-45, 38, 11), 2), rng.uniform(-28, 28, 22)], axis=1)
    homes[11:, 0] *= -1
    phase, pace, wide = rng.uniform(0, 6.28, (22, 2)), rng.uniform(0.15, 0.35, (22, 2)), rng.uniform(4, 8, (22, 2))

    def paths(frame: np.ndarray | int) -> np.ndarray:
        """Return where players are: (frames, players, 2)."""
        t = np.atleast_1d(frame)[:, None, None] / hz
        return homes + wide * np.sin(pace * t + phase)

    players = paths(frames)
    ball = np.zeros((len(frames), 3))
    truth = Truth()
    holder, frame = 5, 0
    last: tuple[int, int, int] | None = None
    while frame < len(frames) - 7 * hz:
        stop = frame + int(rng.integers(hz // 2, 2 * hz))
        ball[frame:stop, :2] = players[frame:stop, holder] + 0.4
        away = holder >= 11
        goal = -52.5 if away else 52.5
        if np.hypot(ball[stop - 1, 0] - goal, ball[stop - 1, 1]) < 35 and rng.random() < 0.3:
            frame = _shoot(rng, ball, stop, hz, away, truth, objects[holder])
            holder, last = (0 if away else 11), None
            continue
        mates = [mate for mate in range(22) if (mate >= 11) == away and mate != holder]
        others = [other for other in range(22) if (other >= 11) != away]
        lost = rng.random() < 0.2
        back = last is not None and not lost and rng.random() < 0.3
        target = int(rng.choice(others if lost else mates))
        if back and last is not None:
            target = int(np.flatnonzero(objects == last[1])[0])
        start = ball[stop - 1, :2]
        flight = max(hz // 3, int(np.hypot(*(players[stop, target] - start)) / rng.uniform(13, 20) * hz))
        flight = min(flight, 3 * hz)
        end = players[stop + flight, target] + 0.4
        share = np.arange(1, flight + 1)[:, None] / (flight + 1)
        ball[stop : stop + flight, :2] = start + share * (end - start)
        if not lost:
            one = ((stop - 1) * step, int(objects[holder]), int(objects[target]))
            truth.passes.append(one)
            if last is not None and (last[1], last[2]) == (one[2], one[1]):
                truth.double_passes.append((last[0], last[1], last[2]))
            last = one
        else:
            last = None
        holder, frame = target, stop + flight
    ball[frame:, :2] = players[frame:, holder] + 0.4
    return _tables(rng, hz, objects, players, ball), truth


def _shoot(rng: np.random.Generator, ball: np.ndarray, stop: int, hz: int, away: bool, truth: Truth, who: int) -> int:
    """Let the ball fly into the goal and lie there; return when the game goes on."""
    start = ball[stop - 1, :2]
    end = np.array([-54.0 if away else 54.0, rng.uniform(-3, 3)])
    flight = max(hz // 3, int(np.hypot(*(end - start)) / rng.uniform(22, 28) * hz))
    share = np.arange(1, flight + 1)[:, None] / flight
    ball[stop : stop + flight, :2] = start + share * (end - start)
    ball[stop : stop + flight, 2] = 1.5 * np.sin(np.pi * share[:, 0] * 0.6)
    ball[stop + flight : stop + flight + hz, :2] = end
    truth.shots.append(((stop - 1) * 1_000_000 // hz, int(who)))
    return stop + flight + hz


def _tables(
    rng: np.random.Generator, hz: int, objects: np.ndarray, players: np.ndarray, ball: np.ndarray
) -> dict[str, pa.Table]:
    """Return positions with a little noise, as two streams."""
    count, times = len(objects), np.arange(len(ball)) * 1_000_000 // hz
    xy = players.reshape(-1, 2) + rng.normal(0, 0.02, (len(times) * count, 2))
    teams = np.where(objects < 100, "home", "away")
    noise = rng.normal(0, 0.1 / hz, ball.shape)
    everywhere = (np.tile(objects, len(times)), np.tile(teams, len(times)))
    return {
        "player": positions(np.repeat(times, count), *everywhere, xy),
        "ball": positions(times, np.full(len(times), BALL), np.full(len(times), "ball"), ball + noise),
    }


def positions(times: np.ndarray, objects: np.ndarray, teams: np.ndarray, at: np.ndarray) -> pa.Table:
    """Return a stream of positions."""
    z = at[:, 2] if at.shape[1] > 2 else np.zeros(len(at))
    return pa.table(
        {
            "match": pa.array(np.zeros(len(times), np.int32)),
            "time": pa.array(times, pa.timestamp("us")),
            "object": pa.array(objects, pa.int32()),
            "team": pa.array(teams),
            "x": pa.array(at[:, 0].astype(np.float32)),
            "y": pa.array(at[:, 1].astype(np.float32)),
            "z": pa.array(z.astype(np.float32)),
        }
    )


def read_match(path: str) -> dict[str, pa.Table]:
    """Return a recorded match: a Parquet file with time, object, team, x, y and z; object 200 is the ball."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = pq.read_table(path)
    is_ball = pc.equal(rows["object"], BALL)
    out = {}
    for name, part in (("player", rows.filter(pc.invert(is_ball))), ("ball", rows.filter(is_ball))):
        times = part["time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        at = np.stack([part[axis].to_numpy() for axis in "xyz"], axis=1)
        out[name] = positions(times, part["object"].to_numpy(), np.array(part["team"].to_pylist()), at)
    return out


def arriving(streams: dict[str, pa.Table], late: dict[str, tuple[int, int]], seed: int = 0) -> dict[str, pa.Table]:
    """Return streams with a column of when each row arrives: so many milliseconds after its time, at least and most.

    Delays go up and down with a period of some seconds, and differ from row to row.
    """
    rng = np.random.default_rng(seed)
    out = {}
    for name, rows in streams.items():
        least, most = (1000 * edge for edge in late[name])
        times = rows["time"].cast(pa.int64()).to_numpy()
        wave = (1 + np.sin(times / 1e6)) / 2
        delay = least + (most - least) * (0.6 * wave + 0.4 * rng.random(rows.num_rows))
        arrival = times + delay.astype(np.int64)
        out[name] = rows.append_column("arrival", pa.array(arrival, pa.timestamp("us")))
    return out
