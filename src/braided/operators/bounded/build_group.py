"""Building several joins under one budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from braided.eviction.group_buffer import GroupBuffer, buffer_bytes
from braided.eviction.policies.policy import Policy
from braided.eviction.recall.group_recall import sample_bytes
from braided.eviction.shared_buffer import check_policy, shared_bytes
from braided.eviction.shed import check_shed
from braided.operators.bounded.budget import resolve_evict, resolve_memory
from braided.operators.bounded.group_spec import GroupSpec, each_stream
from braided.operators.bounded.join_group import JoinGroup, Member
from braided.operators.column_names import check_zones, find_names
from braided.operators.join.build import mark_times, stream_rules, window_join
from braided.operators.physical import ComputedColumn, EngineFeatures, InputColumn, Nested, Plan
from braided.operators.stream import Stream
from braided.time.clocks import Window
from braided.time.lateness import Lateness
from braided.time.resolve import least, resolve_idle, resolve_rules
from braided.typing import JOIN


def build_group(spec: GroupSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    wanted = each_stream(spec.time, "time", spec.streams)
    times = tuple(stream.time_column(wanted[name]) for stream, name in zip(streams, spec.streams, strict=True))
    check_zones(streams, times)
    late: Any = each_stream(spec.lateness, "lateness", spec.streams)
    rules = stream_rules(streams, times, resolve_rules([late[name] for name in spec.streams], len(streams)))
    members, nested, watermark_delays = [], [], [0] * len(streams)
    for join in spec.joins:
        at = spec.streams.index(join.left), spec.streams.index(join.right)
        pair = streams[at[0]], streams[at[1]]
        names = find_names(pair, join.on, (times[at[0]], times[at[1]]))
        pair_rules = rules[at[0]], rules[at[1]]
        window = Window(*join.bounds, (least(pair_rules[0]), least(pair_rules[1])))
        member = window_join(names, pair, window, join.suffixes)
        members.append(Member(join.name, at, member))
        columns, waits = mark_times(member.columns, pair, names.times, window, pair_rules)
        nested.append(Nested(join.name, tuple(InputColumn(c.name, at[c.stream], c.source, c.marks) for c in columns)))
        for side, wait in zip(at, waits, strict=True):
            watermark_delays[side] = max(watermark_delays[side], wait)
    operator = _assemble(spec, streams, times, rules, tuple(members), adaptive=setting.adaptive)
    return Plan(
        spec,
        streams,
        operator,
        times,
        tuple(watermark_delays),
        (ComputedColumn(JOIN, pa.string(), nullable=True), *nested),
        joined=operator,
        scheme="auto" if operator.one_key else "hash",
        fixed=_fixed(operator),
        waits=True,
    )


def _assemble(
    spec: GroupSpec,
    streams: tuple[Stream, ...],
    times: tuple[str, ...],
    rules: tuple[int | Lateness, ...],
    members: tuple[Member, ...],
    *,
    adaptive: bool,
) -> JoinGroup:
    policy = resolve_evict(spec.evict)
    GroupBuffer(1, policy, streams=len(streams), joins=[])  # raises if the policy does not fit
    if spec.share == "credits":
        check_policy(policy)
    room = resolve_memory(
        spec.memory,
        policy,
        [stream.schema for stream in streams],
        row_bytes=0,
        beside=lambda rows: _buffer_bytes(spec, policy, len(members), rows) + sample_bytes(rows, len(members)),
    )
    group = JoinGroup(
        spec.streams,
        tuple(stream.schema for stream in streams),
        times,
        rules,
        members,
        room.rows,
        policy,
        check_shed(spec.shed, bounded=True),
        room.bytes,
        adapts=False,
        idle=resolve_idle(spec.idle),
        share=spec.share,
    )
    return replace(group, adapts=adaptive and _fixed(group) is None)


def _buffer_bytes(spec: GroupSpec, policy: Policy, joins: int, rows: int) -> int:
    """Return the bytes of a buffer of so many joins and rows, but for the rows themselves."""
    if spec.share == "credits":
        return shared_bytes(joins, rows) + policy.group_bytes(rows, joins)
    return buffer_bytes(policy, joins, rows)


def _fixed(group: JoinGroup) -> str | None:
    """Return why the routing of a group cannot change; None if it can."""
    if not group.one_key:
        return "a stream has different keys in different joins, so one worker does all the work"
    if not all(0 in member.streams for member in group.members):
        return "no stream is in every join, so a hot key cannot be split"
    return None
