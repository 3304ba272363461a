"""Building the operator that looks for a pattern."""

from __future__ import annotations

from braided.errors import OptionError
from braided.expressions.parse import Uncompilable
from braided.expressions.tree import Column as Expression
from braided.operators.match.automaton import automaton_of
from braided.operators.match.condition_programs import prepare
from braided.operators.match.expressions import Register, Source, Symbols, compile_define, compile_measure
from braided.operators.match.match_measures import Measures
from braided.operators.match.match_operator import MatchOperator
from braided.operators.match.matcher import Matcher
from braided.operators.match.pattern import parse_pattern
from braided.operators.match.spec import MatchSpec
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
from braided.time.resolve import least, one_lateness, resolve_idle


def build_match(spec: MatchSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    (stream,) = streams
    time = stream.time_column(spec.time)
    keys = stream.key_columns(spec.key)
    if len(set(keys)) < len(keys):
        raise OptionError(f"key={spec.key!r}: names a column twice; name each once")
    matcher = matcher_of(spec, Source(stream.schema, stream.collated, stream.case_sensitive), keys)
    marks = stream.marks_of(time)
    rule = marks.waiting_lateness(one_lateness(spec.lateness))
    idle = resolve_idle(spec.idle)
    operator = MatchOperator(stream.schema, time, stream.hasher(keys), rule, matcher, meaning_of(spec), idle)
    # A match leaves before the horizon passes the time of its first row and `within`.
    longest = matcher.within or 0
    watermark_delay = max(marks.watermark_delay, least(rule)) + longest
    after = TimeMarks(longest, watermark_delay, watermark_after(marks, watermark_delay))
    return Plan(
        spec,
        streams,
        operator,
        (time,),
        (watermark_delay,),
        _columns(matcher, stream, time, after),
        fixed="a match needs the rows of its key on one worker",
        waits=True,
        description=f"looks for {spec.pattern} in order of {time}, {per_key(spec.key)}",
    )


def matcher_of(spec: MatchSpec, source: Source, keys: tuple[str, ...]) -> Matcher:
    """Return the pattern with its conditions and measures compiled for the columns of a stream."""
    try:
        return _compiled(spec, source, keys)
    except Uncompilable as error:
        raise OptionError(str(error)) from error


def _compiled(spec: MatchSpec, source: Source, keys: tuple[str, ...]) -> Matcher:
    pattern = parse_pattern(spec.pattern)
    automaton = automaton_of(pattern)
    names = automaton.symbols
    symbols = Symbols(names, spec.subsets or {}, tuple(automaton.least_before()))  # type: ignore[arg-type]
    numbers = {name.upper(): at for at, name in enumerate(names)}
    registers: list[Register] = []
    conditions, texts = {}, {}
    for name, text in (spec.define or {}).items():
        number, option = numbers[name.upper()], f"define[{name!r}]"
        conditions[number] = compile_define(option, text, source, symbols, number, registers)
        texts[number] = f"{option}={text!r}"
    prepared = prepare(conditions, registers, texts, len(names))
    every = spec.rows == "all"
    remembered: list[Register] = []
    measures = tuple(
        compile_measure(name, text, source, symbols, remembered, running=every) for name, text in spec.measures.items()
    )
    shown = {name: f"measures[{name!r}]={text!r}" for name, text in spec.measures.items()}
    result = Measures(measures, tuple(remembered), names, automaton.symbol, source.schema, shown, every)
    taken = [name.lower() for name in (source.schema.names if every else keys)]
    for name in spec.measures:
        if name.lower() in taken:
            raise OptionError(f"measures[{name!r}]: the result has a column of that name; choose another")
    skip, target = spec.skip(automaton)
    negated = -1 if pattern.negated is None else numbers[pattern.negated.upper()]
    return Matcher(automaton, prepared, result, keys, spec.within_us(pattern, automaton), negated, skip, target)


def meaning_of(spec: MatchSpec) -> dict[str, object]:
    """Return the options that give stored rows their meaning, as plain JSON."""
    subsets = {name: list(members) for name, members in (spec.subsets or {}).items()}
    define = dict(spec.define or {})
    return {"pattern": spec.pattern, "define": define, "subsets": subsets, "after": spec.after, "rows": spec.rows}


def _columns(matcher: Matcher, stream: Stream, time: str, marks: TimeMarks) -> tuple[Column, ...]:
    names = stream.schema.names if matcher.measures.every else matcher.key
    columns: list[Column] = [InputColumn(name, 0, name, marks if name == time else None) for name in names]
    for measure, field in zip(matcher.measures.measures, matcher.measures.fields, strict=True):
        if measure.copied:
            assert isinstance(measure.root, Expression)
            source = measure.root.name
            columns.append(InputColumn(measure.name, 0, source, marks if source == time else None, nullable=True))
        else:
            columns.append(ComputedColumn(measure.name, field.type, nullable=True))
    return tuple(columns)
