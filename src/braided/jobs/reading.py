"""Reading a job file: every key is known and checked before anything starts, and errors say where they are."""

from __future__ import annotations

import difflib
import keyword
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from braided.durations import parse_duration
from braided.errors import BraidedError, JobError
from braided.jobs.job import NOW, TOPIC, Job, Needs, Sink, Source, Step
from braided.jobs.places import Path as Place
from braided.jobs.places import line_of

T = TypeVar("T")
Json = Mapping[str, Any]

_LARGEST = 1 << 20
_SECRET = re.compile(r"\$\{(\w+)\}")
_UNCLOSED = re.compile(r"\$\{(?![^{}]+\})")
_SIZE = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B|B)", re.IGNORECASE)
# What a fleet takes for the names of a component and of an operator: what runs alone can be submitted.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_OPERATOR = re.compile(r"(?=.{1,100}$)[A-Za-z0-9][\w-]*(\.[A-Za-z0-9][\w-]*)*", re.ASCII)
_MODES = ("append", "update", "complete")
# An option of a join in a step: what may be written in TOML.
_PLAIN = (str, int, float, bool)


def read_job(path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> Job:
    """Return the job in a file. ``${NAME}`` in an option's value is a variable of the environment."""
    file = Path(path)
    return parse_job(read_text(file), str(file), environment)


def read_text(file: Path) -> str:
    """Return what a job file has in it."""
    try:
        size = file.stat().st_size
        if size > _LARGEST:
            raise JobError(f"{file}: has {size} bytes; a job file has at most {_LARGEST}")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobError(f"{file}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise JobError(f"{file}: {error.strerror}") from None


def parse_job(text: str, file: str = "job", environment: Mapping[str, str] = os.environ) -> Job:
    """Return the job that a text describes; `file` is what messages call it."""
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise JobError(f"{file}: is not TOML: {error}") from None
    return _Reader(text, file, environment).job(given)


class _Reader:
    """Checks one file."""

    def __init__(self, text: str, file: str, environment: Mapping[str, str]) -> None:
        self._text, self._file, self._environment = text, file, environment
        self._secrets: set[str] = set()

    def job(self, given: Json) -> Job:
        known = ("name", "operator", "checkpoint", "trigger", "needs", "spark", "sources", "tables", "steps", "sink")
        self._known(given, (), known)
        sources = self._tables(given, "sources", self._source)
        if not sources:
            self._refuse(("sources",), "a job needs a source; write a table [sources.NAME]")
        tables = self._tables(given, "tables", self._source)
        streams: list[str] = []
        for kind, names in (("sources", sources), ("tables", tables)):
            for name in names:
                self._is_new(name, streams, (kind, name))
                streams.append(name)
        steps = []
        for number, each in enumerate(self._value(given, ("steps",), list, [])):
            step = self._step(self._is_table(each, ("steps", number)), ("steps", number), streams)
            steps.append(step)
            streams.append(step.name)
        last = steps[-1].name if steps else next(iter(sources))
        return Job(
            name=self._name(given),
            checkpoint=self._path_of(given, ("checkpoint",)),
            sources=sources,
            tables=tables,
            steps=tuple(steps),
            sink=self._sink(
                self._is_table(given.get("sink"), ("sink",)), last, [n for n in streams if n not in tables]
            ),
            trigger=self._trigger(given),
            operator=self._operator(given),
            needs=self._needs(self._is_table(given.get("needs", {}), ("needs",))),
            spark=self._settings(given, ("spark",)),
            secrets=frozenset(self._secrets),
            places=self._places(sources, tables, steps),
        )

    def _places(self, sources: Iterable[str], tables: Iterable[str], steps: Sequence[Step]) -> dict[str, str]:
        """Return where each part that is built stands: the file and the line, by what messages call it."""
        ways = [(number, "python" if step.sql is None else "sql") for number, step in enumerate(steps)]
        parts: list[Place] = [("sources", name) for name in sources]
        parts += [("tables", name) for name in tables]
        parts.append(("sink",))
        parts += [("steps", number, way) for number, way in ways]
        return {_key(at): f"{self._file}, line {line_of(self._text, at)}" for at in parts}

    def _name(self, given: Json) -> str:
        name: str = self._text_of(given, ("name",))
        if not _NAME.fullmatch(name):
            rule = "letters from A to Z, digits, dots, dashes and underscores, a letter or digit first, at most 80"
            self._refuse(("name",), f"{name!r}: write {rule}")
        return name

    def _operator(self, given: Json) -> str | None:
        operator: str | None = self._text_of(given, ("operator",), None)
        if operator is not None and not _OPERATOR.fullmatch(operator):
            rule = "parts with dots between them, as in 'join.window', at most 100 characters"
            self._refuse(("operator",), f"{operator!r}: write {rule}")
        return operator

    def _trigger(self, given: Json) -> str | None:
        trigger: str | None = self._text_of(given, ("trigger",), None)
        if trigger is not None and trigger != NOW:
            self._duration(trigger, ("trigger",), f", or {NOW!r}")
        return trigger

    def _needs(self, given: Json) -> Needs:
        self._known(given, ("needs",), ("cores", "memory"))
        cores = self._value(given, ("needs", "cores"), int, Needs.cores)
        memory = self._text_of(given, ("needs", "memory"), Needs.memory)
        if not 1 <= cores <= 4096:
            self._refuse(("needs", "cores"), f"{cores}: write a number from 1 to 4096")
        if not _SIZE.fullmatch(memory):
            self._refuse(("needs", "memory"), f"{memory!r}: write a size with its unit, such as '2 GB'")
        return Needs(cores=cores, memory=memory)

    def _source(self, given: Json, at: Place) -> Source:
        self._known(given, at, ("format", "path", "schema", "time", "watermark", "max_files", "options"))
        source = Source(
            format=self._text_of(given, (*at, "format"), "parquet"),
            path=self._path_of(given, (*at, "path"), None),
            schema=self._text_of(given, (*at, "schema"), None),
            time=self._text_of(given, (*at, "time"), None),
            watermark=self._text_of(given, (*at, "watermark"), None),
            max_files=self._value(given, (*at, "max_files"), int, None),
            options=self._settings(given, (*at, "options")),
        )
        if source.format in ("parquet", TOPIC) and source.path is None:
            self._refuse((*at, "path"), f"is missing: where is this {source.format}?")
        if source.max_files is not None and source.max_files < 1:
            self._refuse((*at, "max_files"), f"{source.max_files}: write a number of 1 or more")
        if source.watermark is not None:
            self._duration(source.watermark, (*at, "watermark"))
            if source.time is None:
                self._refuse((*at, "time"), "is missing: a watermark needs the event-time column")
        return source

    def _is_new(self, name: str, streams: list[str], at: Place) -> None:
        """Refuse a name that another stream has. Spark finds names whatever their case."""
        for other in streams:
            if name.lower() == other.lower():
                also = "" if name == other else ", which Spark takes for the same"
                self._refuse(at, f"{name!r}: there is a source, table or earlier step {other!r}{also}; choose another")

    def _step(self, given: Json, at: Place, streams: list[str]) -> Step:
        self._known(given, at, ("name", "sql", "python", "inputs", "options"))
        name = self._text_of(given, (*at, "name"))
        self._stream_name(name, (*at, "name"))
        self._is_new(name, streams, (*at, "name"))
        sql, python = (self._text_of(given, (*at, way), None) for way in ("sql", "python"))
        if (sql is None) == (python is None):
            self._refuse(at, "a step has sql = '...' or python = 'module:function', one of them")
        inputs = self._value(given, (*at, "inputs"), list, [])
        for each in inputs:
            if each not in streams:
                self._refuse((*at, "inputs"), f"{each!r}: no source or earlier step; there are {', '.join(streams)}")
        if python is not None:
            module, _, function = python.partition(":")
            if not all(_is_identifier(part) for part in (*module.split("."), function)):
                self._refuse((*at, "python"), f"{python!r}: write 'module:function'")
            if not inputs:
                self._refuse((*at, "inputs"), "is missing: which streams does the function take?")
            if given.get("options"):
                self._refuse((*at, "options"), "a function has none; options are those of joins in a step's sql")
        elif inputs:
            self._refuse((*at, "inputs"), "a step with sql names its streams in the text")
        options = self._is_table(given.get("options", {}), (*at, "options"))
        for option, value in options.items():
            if not isinstance(value, _PLAIN):
                self._refuse((*at, "options", option), "write a text, a number, true or false")
        return Step(name=name, sql=sql, python=python, inputs=tuple(inputs), options=dict(options))

    def _sink(self, given: Json, last: str, streams: list[str]) -> Sink:
        at = ("sink",)
        self._known(given, at, ("format", "input", "path", "mode", "options"))
        sink = Sink(
            format=self._text_of(given, (*at, "format")),
            input=self._text_of(given, (*at, "input"), last),
            path=self._path_of(given, (*at, "path"), None),
            mode=self._text_of(given, (*at, "mode"), "append"),
            options=self._settings(given, (*at, "options")),
        )
        if sink.input not in streams:
            self._refuse((*at, "input"), f"{sink.input!r}: no source or step; there are {', '.join(streams)}")
        if sink.mode not in _MODES:
            self._refuse((*at, "mode"), f"{sink.mode!r}: write {', '.join(_MODES[:-1])} or {_MODES[-1]}")
        if sink.format in ("parquet", TOPIC) and sink.path is None:
            self._refuse((*at, "path"), "is missing: where do the results go?")
        if sink.format == TOPIC and (sink.options or sink.mode != "append"):
            self._refuse(at, "a topic is appended to, and has no options")
        return sink

    def _tables(self, given: Json, key: str, read: Callable[[Json, Place], T]) -> dict[str, T]:
        found = {}
        for name, each in self._is_table(given.get(key, {}), (key,)).items():
            self._stream_name(name, (key, name))
            found[name] = read(self._is_table(each, (key, name)), (key, name))
        return found

    def _settings(self, given: Json, at: Place) -> dict[str, str]:
        """Return options of Spark's, all texts, with variables of the environment in place."""
        found = {}
        for name, value in self._is_table(given.get(str(at[-1]), {}), at).items():
            if not isinstance(value, _PLAIN):
                self._refuse((*at, name), "write a text, a number, true or false")
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[name] = self._with_secrets(text, (*at, name))
        return found

    def _with_secrets(self, text: str, at: Place) -> str:
        if _UNCLOSED.search(text):
            self._refuse(at, "${ without a name and }; write ${NAME} for a variable of the environment")
        for variable in _SECRET.findall(text):
            if variable not in self._environment:
                self._refuse(at, f"${{{variable}}}: the environment has no such variable; set it")
            self._secrets.add(self._environment[variable])
        return _SECRET.sub(lambda match: self._environment[match[1]], text)

    def _text_of(self, given: Json, at: Place, *default: Any) -> Any:
        value = self._value(given, at, str, *default)
        if value is not None and (not value.strip() or "\0" in value):
            self._refuse(at, f"{value!r}: write a text")
        return value

    def _path_of(self, given: Json, at: Place, *default: Any) -> Any:
        value = self._text_of(given, at, *default)
        if value is not None and "${" in value:
            self._refuse(at, "variables of the environment are filled in where options are; write the path itself")
        return value

    def _value(self, given: Json, at: Place, kind: type, *default: Any) -> Any:
        key = str(at[-1])
        if key not in given:
            if default:
                return default[0]
            self._refuse(at, "is missing")
        value = given[key]
        if type(value) is not kind:
            words = {str: "a text", int: "a whole number", list: "a list"}
            self._refuse(at, f"{value!r}: write {words[kind]}")
        return value

    def _is_table(self, value: Any, at: Place) -> Json:
        if value is None:
            self._refuse(at, "is missing")
        if not isinstance(value, dict):
            self._refuse(
                at, f"write a table, [{'.'.join(map(str, at))}{'.NAME' * (at in (('sources',), ('tables',)))}]"
            )
        return value

    def _known(self, given: Json, at: Place, known: tuple[str, ...]) -> None:
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                self._refuse((*at, key), f"no such key; {hint}")

    def _stream_name(self, name: str, at: Place) -> None:
        if not _is_identifier(name):
            self._refuse(at, f"{name!r}: write a name of letters, digits and underscores, which SQL can use")

    def _duration(self, value: str, at: Place, more: str = "") -> None:
        try:
            if parse_duration(value, "x") >= 0:
                return
        except BraidedError:
            pass
        self._refuse(at, f"{value!r}: write a duration, such as '10 seconds'{more}")

    def _refuse(self, at: Place, why: str) -> NoReturn:
        raise JobError(f"{self._file}, line {line_of(self._text, at)}: {_key(at)}: {why}")


def _key(at: Place) -> str:
    return ".".join(str(part) for part in at)


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
