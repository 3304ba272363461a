"""Building the operator that searches for a pattern."""

from __future__ import annotations

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.expressions.parse import Uncompilable
from braided.expressions.tree import Column as Expression
from braided.operators.match.automaton import AT_BEGIN, AT_END, automaton_of
from braided.operators.match.condition_programs import prepare
from braided.operators.match.expressions import (
    MATCH_NUMBER,
    NUMBERS,
    Register,
    Source,
    Symbols,
    columns_of,
    compile_define,
    compile_measure,
    place_of,
    sight,
)
from braided.operators.match.match_aggregates import MatchAggregate
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
from braided.time.resolve import are_fixed, least, one_lateness, resolve_idle

# Conditions have a bit for each symbol; measures have one more.
_MEASURES = 63


def build_match(spec: MatchSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    (stream,) = streams
    time = stream.time_column(spec.time)
    keys = stream.key_columns(spec.key)
    if len(set(keys)) < len(keys):
        raise OptionError(f"key={spec.key!r}: names a column twice; name each once")
    matcher = matcher_of(spec, Source(stream.schema, stream.collated, stream.case_sensitive), keys, ends=setting.ends)
    ties = tuple((stream.find(name, "ties"), descending) for name, descending in spec.order_of_ties())
    marks = stream.marks_of(time)
    rule = marks.waiting_lateness(one_lateness(spec.lateness))
    idle = resolve_idle(spec.idle)
    operator = MatchOperator(stream.schema, time, stream.hasher(keys), rule, matcher, meaning_of(spec), idle, ties)
    # A match is returned before the horizon passes the time of its first row plus `within`.
    longest = matcher.longest or 0
    watermark_delay = max(marks.watermark_delay, least(rule)) + longest
    exact = are_fixed([rule]) and matcher.longest is not None
    after = TimeMarks(longest, watermark_delay, watermark_after(marks, watermark_delay), exact)
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


def matcher_of(spec: MatchSpec, source: Source, keys: tuple[str, ...], *, ends: bool = True) -> Matcher:
    """Return the pattern with its conditions and measures compiled for the columns of a stream.

    ends : the rows end, which is also the end of every key.
    """
    try:
        return _compiled(spec, source, keys, ends)
    except Uncompilable as error:
        raise OptionError(str(error)) from error


def _compiled(spec: MatchSpec, source: Source, keys: tuple[str, ...], ends: bool) -> Matcher:
    pattern = parse_pattern(spec.pattern)
    automaton = automaton_of(pattern)
    names = automaton.symbols
    if automaton.anchors & AT_END and not ends and spec.forget is None:
        raise OptionError(
            f"pattern={spec.pattern!r}: '$' is after the last row of a key, but keys of a stream have no end; write "
            "forget= for the time without a row after which a key ends, such as '1 hour'"
        )
    symbols = Symbols(names, spec.subsets or {}, tuple(automaton.least_before()))  # type: ignore[arg-type]
    negated = -1 if pattern.negated is None else [name.upper() for name in names].index(pattern.negated.upper())
    numbers = {name.upper(): at for at, name in enumerate(names)}
    registers: list[Register] = []
    conditions, texts = {}, {}
    for name, text in (spec.define or {}).items():
        number, option = numbers[name.upper()], f"define[{name!r}]"
        conditions[number] = compile_define(option, text, source, symbols, number, registers)
        texts[number] = f"{option}={text!r}"
    prepared = prepare(conditions, registers, texts, names)
    every = spec.rows != "one"
    given = spec.measures or {}
    remembered: list[Register] = []
    aggregates: list[MatchAggregate] = []
    measures = tuple(
        compile_measure(name, text, source, symbols, remembered, aggregates, running=every)
        for name, text in given.items()
    )
    shown = {name: f"measures[{name!r}]={text!r}" for name, text in given.items()}
    result = Measures(
        measures, tuple(remembered), tuple(aggregates), names, automaton.symbol, source.schema, shown, every
    )
    taken = [name.lower() for name in (source.schema.names if every else keys)]
    for name in given:
        if name.lower() in taken:
            raise OptionError(f"measures[{name!r}]: the result has a column of that name; choose another")
    skip, target = spec.skip(automaton)
    within = spec.within_us(pattern, automaton)
    roots = tuple(measure.root for measure in measures)
    sights = [sight(root, registers, symbols, own) for own, root in conditions.items()]
    sights.append(sight(roots, remembered, symbols, None))
    reach = {own: ahead for own, (_, ahead) in zip([*conditions, _MEASURES], sights, strict=True) if ahead}
    if negated in reach:
        raise OptionError(
            f"{texts[negated]}: NEXT is not supported in the definition of a negated symbol; leave it out"
        )
    if reach and within is None:
        raise OptionError("within=None: NEXT would wait for ever; write how much later a following row may be")
    arguments = tuple(aggregate.arguments for aggregate in aggregates)
    is_numbered = any(
        column.side == NUMBERS and column.name == MATCH_NUMBER for column in columns_of((roots, arguments))
    )
    context = max(*(back for back, _ in sights), int(is_numbered or automaton.anchors & AT_BEGIN))
    forget = spec.forget_us((within or 0) * (2 if reach else 1), needed=context > 0 or automaton.anchors > 0)
    return Matcher(
        automaton, prepared, result, keys, within, negated, skip, target, context, reach, forget, is_numbered,
        spec.rows == "all with unmatched", spec.rows == "all omit empty",
    )  # fmt: skip


def meaning_of(spec: MatchSpec) -> dict[str, object]:
    """Return the options that give stored rows their meaning, as plain JSON."""
    subsets = {name: list(members) for name, members in (spec.subsets or {}).items()}
    define = dict(spec.define or {})
    meaning: dict[str, object] = {
        "pattern": spec.pattern,
        "define": define,
        "subsets": subsets,
        "after": spec.after,
        "rows": spec.rows,
    }
    if spec.ties:
        meaning["ties"] = list(spec.ties)
    return meaning if spec.forget is None else {**meaning, "forget": parse_duration(spec.forget, "forget")}


def _columns(matcher: Matcher, stream: Stream, time: str, marks: TimeMarks) -> tuple[Column, ...]:
    names = stream.schema.names if matcher.measures.every else matcher.key
    columns: list[Column] = [InputColumn(name, 0, name, marks if name == time else None) for name in names]
    for measure, field in zip(matcher.measures.measures, matcher.measures.fields, strict=True):
        if measure.copied:
            assert isinstance(measure.root, Expression)
            source = measure.root.name
            # A row before the match may have any age.
            is_time = source == time and place_of(measure.root.side)[1] >= 0
            columns.append(InputColumn(measure.name, 0, source, marks if is_time else None, nullable=True))
        else:
            columns.append(ComputedColumn(measure.name, field.type, nullable=True))
    return tuple(columns)
