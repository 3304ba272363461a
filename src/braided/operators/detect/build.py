"""Building the operator that runs a hierarchy of detectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.operators.bounded.group_spec import each_stream
from braided.operators.column_names import check_zones
from braided.operators.detect.arranging import arrange, subscriptions
from braided.operators.detect.calling import ManyKeys, PerKey
from braided.operators.detect.declared_columns import read_columns
from braided.operators.detect.detect_operator import DetectOperator
from braided.operators.detect.detector import Declared, Detector, KeyedDetector
from braided.operators.detect.detector_delay import LEARNED
from braided.operators.detect.event_batches import AT, GROUP, RESERVED, TYPE, Keys
from braided.operators.detect.node import Node, Tactic
from braided.operators.detect.patterns import InPattern
from braided.operators.detect.spec import DetectSpec, Pattern
from braided.operators.match.build import matcher_of, meaning_of
from braided.operators.match.expressions import Source
from braided.operators.match.match_operator import MatchOperator
from braided.operators.physical import (
    Column,
    ComputedColumn,
    EngineFeatures,
    InputColumn,
    Plan,
    per_key,
    watermark_after,
)
from braided.operators.stream import Stream, TimeMarks
from braided.time.lateness import Lateness
from braided.time.resolve import are_fixed, least, resolve_idle, resolve_rule
from braided.typing import AnyDetector

Types = dict[str, pa.Schema]


def build_detect(spec: DetectSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    keys = _keys(spec, streams)
    rules = _rules(spec, streams, keys.time)
    types: Types = {name: stream.schema for name, stream in zip(spec.streams, streams, strict=True)}
    sensitive = any(stream.case_sensitive for stream in streams)
    nodes: list[Node] = []
    for number in arrange(spec.streams, spec.detectors):
        one = spec.detectors[number]
        event_schema = _event_schema(one, types, keys)
        collated = {name for stream in streams for name in stream.collated}
        if isinstance(one, Pattern):
            schema, tactic, delay = _pattern(
                spec, one, event_schema, keys, Source(event_schema, frozenset(collated), sensitive)
            )
        else:
            schema, tactic, delay = _detector(one, types, keys)
        if one.publishes in types and not types[one.publishes].equals(schema):
            raise OptionError(
                f"detectors: {one.publishes!r} is published with {_schema_text(types[one.publishes])} and with "
                f"{_schema_text(schema)}; give both the same columns, or two names"
            )
        types[one.publishes] = schema
        same = [node for node in nodes if node.publishes == one.publishes]
        name = f"{one.publishes} ({len(same) + 1})" if same else one.publishes
        forget = None if isinstance(one, Pattern) else _forget(one)
        nodes.append(Node(name, one.publishes, subscriptions(one), keys, event_schema, schema, delay, tactic, forget))
    chosen = spec.chosen()
    flat = isinstance(spec.types, str)
    _check_result(chosen, keys, flat=flat)
    operator = DetectOperator(
        spec.streams,
        tuple(stream.schema for stream in streams),
        keys,
        rules,
        tuple(nodes),
        chosen,
        flat,
        resolve_idle(spec.idle),
        _meaning(spec, nodes),
    )
    early = _earliest(spec, nodes, chosen)
    watermark_delays = tuple(
        max(stream.marks_of(keys.time).watermark_delay, least(rule)) + (early or 0)
        for stream, rule in zip(streams, rules, strict=True)
    )
    after = TimeMarks(
        early,
        max(watermark_delays),
        watermark_after(streams[0].marks_of(keys.time), max(watermark_delays)),
        are_fixed(rules),
    )
    return Plan(
        spec,
        streams,
        operator,
        operator.times,
        watermark_delays,
        tuple(_column(field, keys, after) for field in operator.output),
        fixed="a detector needs the rows of its key on one worker",
        waits=True,
        description=f"detects {', '.join(chosen)} in {', '.join(spec.streams)} in order of {keys.time}, "
        f"{per_key(spec.key)}",
    )


def _keys(spec: DetectSpec, streams: Sequence[Stream]) -> Keys:
    first = streams[0]
    time, key = first.time_column(spec.time), first.key_columns(spec.key)
    if len({*key, time}) < len(key) + 1:
        raise OptionError(f"key={spec.key!r}: names a column twice, or the time; name each once")
    for stream in streams:
        if stream.time_column(time) != time:
            raise OptionError(f"time={time!r}: the name in {stream.called} differs in case; rename it")
        for name in key:
            kind, wanted_kind = stream.schema.field(stream.key_column(name, "key")).type, first.schema.field(name).type
            if name not in stream.schema.names or kind != wanted_kind:
                raise OptionError(
                    f"key={name!r}: has type {kind} in {stream.called} and {wanted_kind} in {first.called}; cast one"
                )
        for name in stream.schema.names:
            if name.lower() in RESERVED and not _is_trigger(name, stream.schema, time):
                raise OptionError(
                    f"{stream.label}: column {name!r}: events already have a column of that name; rename it"
                )
    check_zones(streams, [time] * len(streams))
    return Keys(key, time, first.hasher(key))


def _is_trigger(name: str, schema: pa.Schema, time: str) -> bool:
    """Whether a column has the triggers of events: then a detector published them, perhaps in another job."""
    return bool(name == AT and schema.field(name).type == schema.field(time).type)


def _rules(spec: DetectSpec, streams: Sequence[Stream], time: str) -> tuple[int | Lateness, ...]:
    """Return the lateness of each stream; a learned one has no floor, because every event would wait for it."""
    latenesses = each_stream(spec.lateness, "lateness", spec.streams)
    rules = []
    for name, stream in zip(spec.streams, streams, strict=True):
        rule = None if latenesses[name] is None else resolve_rule(latenesses[name], 0)
        rules.append(stream.marks_of(time).waiting_lateness(rule))
    return tuple(rules)


def _event_schema(one: AnyDetector, types: Types, keys: Keys) -> pa.Schema:
    """Return the columns of the events that a detector sees: those of all its types."""
    names = subscriptions(one)
    first = types[names[0]]
    moment = first.field(keys.time).type
    fields = {TYPE: (pa.field(TYPE, pa.string()), names[0])}
    fields |= {name: (first.field(name), names[0]) for name in (*keys.key, keys.time)}
    fields[AT] = (pa.field(AT, moment), names[0])
    for type_ in names:
        for field in types[type_]:
            known = fields.setdefault(field.name, (field, type_))
            if known[0].type != field.type:
                raise OptionError(
                    f"detector {one.publishes!r}: column {field.name!r} is {known[0].type} in {known[1]!r} and "
                    f"{field.type} in {type_!r}; give it one type, or another name"
                )
    return pa.schema([field.with_nullable(True).remove_metadata() for field, _ in fields.values()])


def _detector(one: Detector | KeyedDetector, types: Types, keys: Keys) -> tuple[pa.Schema, Tactic, int | Lateness]:
    who = f"{type(one).__name__}.schema"
    of_streams = next(iter(types.values()))
    moment = of_streams.field(keys.time).type
    declared = read_columns(one.schema, who, moment)
    for name in declared.names:
        if name.lower() in RESERVED or name in keys.key:
            what = "part of the key, which Braided adds" if name in keys.key else "added by Braided"
            raise OptionError(f"{who}: column {name!r} is {what}; leave it out or rename it")
    if keys.time not in declared.names or not pa.types.is_timestamp(declared.field(keys.time).type):
        raise OptionError(f"{who}={one.schema!r}: has no time column {keys.time!r}; write '{keys.time} timestamp, ...'")
    own = [pa.field(field.name, moment) if field.name == keys.time else field for field in declared]
    key = [of_streams.field(name).with_nullable(True).remove_metadata() for name in keys.key]
    schema = pa.schema([*key, *own, pa.field(AT, moment)])
    if isinstance(one, KeyedDetector):
        state = read_columns(one.state, f"{type(one).__name__}.state", moment)
        taken = [name for name in state.names if name.lower() == GROUP or name in keys.key]
        if taken:
            raise OptionError(
                f"{type(one).__name__}.state: column {taken[0]!r} is added by Braided; leave it out or rename it"
            )
        return schema, ManyKeys(one, state), _delay(one)
    return schema, PerKey(one), _delay(one)


def _delay(one: Declared) -> int | Lateness:
    """Return how much earlier than its trigger an event may be dated, or how this is learned."""
    if one.delay is None:
        return LEARNED
    if isinstance(one.delay, Lateness):
        if one.delay.recall is not None or one.delay.clock_rows is not None:
            raise OptionError(f"{type(one).__name__}.delay: recall and clock_rows do not apply here; leave them out")
        return one.delay
    micros = parse_duration(one.delay, f"{type(one).__name__}.delay")
    if micros < 0:
        raise OptionError(f"{type(one).__name__}.delay={one.delay!r}: negative; write '0 seconds' or more")
    return micros


def _forget(one: Declared) -> int | None:
    """Return after how many microseconds without events a key is forgotten; None for never."""
    micros = None if one.forget is None else parse_duration(one.forget, f"{type(one).__name__}.forget")
    if micros is not None and micros <= 0:
        raise OptionError(
            f"{type(one).__name__}.forget={one.forget!r}: every event would get a new instance; write a duration above "
            "zero, or None"
        )
    return micros


def _pattern(
    spec: DetectSpec, one: Pattern, events: pa.Schema, keys: Keys, source: Source
) -> tuple[pa.Schema, Tactic, int | Lateness]:
    """Return what a pattern publishes, how it is run, and its delay: a match may be open until `within` has passed."""
    try:
        matcher = matcher_of(one.spec(spec.time, spec.key), source, keys.key, ends=False)
    except OptionError as error:
        raise OptionError(f"Pattern({one.publishes!r}): {error}") from error
    if matcher.automaton.may_be_empty:
        raise OptionError(
            f"Pattern({one.publishes!r}): pattern={one.pattern!r}: may match no rows, but an event needs the time "
            "of a row; write + for *"
        )
    output, moment = matcher.output, events.field(keys.time).type
    for name in (keys.time, *([AT] if AT in output.names else [])):
        if name not in output.names or output.field(name).type != moment:
            raise OptionError(
                f"Pattern({one.publishes!r}): no measure is named as the time column {name!r}; write "
                f"{{{name!r}: 'last(A.{keys.time})'}}"
            )
    for name in output.names:
        if name.lower() in (TYPE, GROUP):
            raise OptionError(
                f"Pattern({one.publishes!r}): measure {name!r}: events already have a column of that name; rename it"
            )
    schema = pa.schema([field.with_nullable(True) for field in output])
    schema = schema if AT in schema.names else schema.append(pa.field(AT, moment))
    matching = MatchOperator(events, keys.time, keys.hasher, 0, matcher, {})
    return schema, InPattern(matching), matcher.longest or 0


def _check_result(chosen: Sequence[str], keys: Keys, *, flat: bool) -> None:
    taken = [name.lower() for name in (TYPE, *keys.key, keys.time, AT)]
    for name in () if flat else chosen:
        if name.lower() in taken:
            raise OptionError(f"types: the result already has a column {name!r}; rename the event type")


def _meaning(spec: DetectSpec, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the options that give the state its meaning, as plain JSON: for a detector, what it declares."""
    by_name = {node.name: node for node in nodes}
    numbers = arrange(spec.streams, spec.detectors)
    detectors = []
    for number, node in zip(numbers, by_name.values(), strict=True):
        one = spec.detectors[number]
        meaning: dict[str, Any] = {
            "publishes": node.publishes,
            "subscribes": list(node.subscribes),
            "schema": [f"{field.name} {field.type}" for field in node.schema],
        }
        if isinstance(one, Pattern):
            # Measures may change: they are computed when a match is found. Its events' columns may not.
            meaning |= {**meaning_of(one.spec(spec.time, spec.key)), "within": node.delay}
        elif isinstance(node.tactic, ManyKeys):
            meaning["state"] = [f"{field.name} {field.type}" for field in node.tactic.state]
        if not isinstance(one, Pattern):
            meaning |= {"learned": not isinstance(node.delay, int), "forget": node.forget}
        detectors.append(meaning)
    return {"streams": list(spec.streams), "detectors": detectors}


def _earliest(spec: DetectSpec, nodes: Sequence[Node], chosen: Sequence[str]) -> int | None:
    """Return how far behind the streams' horizon an event of the result may be dated; None if this is learned."""
    delays: dict[str, int | None] = dict.fromkeys(spec.streams, 0)
    for node in nodes:
        below = [delays[name] for name in node.subscribes]
        own = None
        if isinstance(node.delay, int) and None not in below:
            own = max(part for part in below if part is not None) + node.delay
        if node.publishes in delays:
            other = delays[node.publishes]
            own = None if own is None or other is None else max(own, other)
        delays[node.publishes] = own
    delays_of_result = [delays[name] for name in chosen]
    return None if None in delays_of_result else max((part for part in delays_of_result if part is not None), default=0)


def _column(field: pa.Field, keys: Keys, marks: TimeMarks) -> Column:
    if field.name == keys.time:
        return InputColumn(field.name, 0, field.name, marks, nullable=True)
    if field.name in keys.key:
        return InputColumn(field.name, 0, field.name, nullable=True)
    return ComputedColumn(field.name, field.type, nullable=True)


def _schema_text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema if field.name != AT)
