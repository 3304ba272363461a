"""Read job files into `Job`s; raise with the line if a job cannot run."""

from __future__ import annotations

import dataclasses
import keyword
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from braided.jobs.job_file import NOW, TOPIC, Job, Needs, Sink, Source, Step
from braided.jobs.toml_file import Path as Place
from braided.jobs.toml_file import Table, TomlFile, dotted, read_text

_SECRET = re.compile(r"\$\{(\w+)\}")
_UNCLOSED = re.compile(r"\$\{(?![^{}]+\})")
_SIZE = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B|B)", re.IGNORECASE)
# The rules of a fleet for the names of a component and of an operator, so that every job can be submitted.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_OPERATOR = re.compile(r"(?=.{1,100}$)[A-Za-z0-9][\w-]*(\.[A-Za-z0-9][\w-]*)*", re.ASCII)
_MODES = ("append", "update", "complete")
# The TOML types of a join's option in a step.
_PLAIN = (str, int, float, bool)
_NAME_RULE = "letters from A to Z, digits, dots, dashes and underscores, a letter or digit first, at most 80"
_OPERATOR_RULE = "parts with dots between them, as in 'join.window', at most 100 characters"
_KINDS = {"max_files": int, "cores": int, "inputs": list}  # the types of keys; all others are strings
_KEYS = ("name", "operator", "checkpoint", "trigger", "needs", "spark", "sources", "tables", "steps", "sink")


def read_job(path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> Job:
    """Return the job in a file. ``${NAME}`` in an option's value is replaced by an environment variable."""
    file = Path(path)
    return parse_job(read_text(file), str(file), environment)


def parse_job(text: str, file: str = "job", environment: Mapping[str, str] = os.environ) -> Job:
    """Return the job in a text; `file` is its name in messages."""
    return _JobReader(TomlFile(text, file), environment).job()


class _JobReader:
    def __init__(self, file: TomlFile, environment: Mapping[str, str]) -> None:
        self._file, self._environment = file, environment
        self._refuse = file.refuse
        self._secrets: set[str] = set()

    def job(self) -> Job:
        file, root = self._file, self._file.root
        file.check_keys(root, (), _KEYS)
        sources, tables = self._sources("sources"), self._sources("tables")
        if not sources:
            self._refuse(("sources",), "a job needs a source; add a table [sources.NAME]")
        streams: list[str] = []
        for at in [("sources", name) for name in sources] + [("tables", name) for name in tables]:
            self._check_new(at[1], streams, at)
            streams.append(at[1])
        steps = []
        for number, table in enumerate(file.value(root, ("steps",), list, [])):
            steps.append(self._step(file.table(table, ("steps", number)), ("steps", number), streams))
            streams.append(steps[-1].name)
        last = steps[-1].name if steps else next(iter(sources))
        built: list[Place] = [("sources", name) for name in sources]
        built += [("tables", name) for name in tables]
        built += [("sink",), *(("steps", at, "sql" if step.sql else "python") for at, step in enumerate(steps))]
        return Job(
            name=self._matching("name", _NAME, _NAME_RULE),
            checkpoint=self._path(root, ("checkpoint",)),
            sources=sources,
            tables=tables,
            steps=tuple(steps),
            sink=self._sink(last, [name for name in streams if name not in tables]),
            trigger=self._trigger(),
            operator=self._matching("operator", _OPERATOR, _OPERATOR_RULE, None),
            needs=self._needs(),
            spark=self._settings(root, ("spark",)),
            secrets=frozenset(self._secrets),
            places={dotted(at): file.where(at) for at in built},
        )

    def _values(self, kind: Any, table: Table, at: Place) -> dict[str, Any]:
        """Return the values of a table with the fields of a dataclass as keys; fields without default are required."""
        fields = dataclasses.fields(kind)
        self._file.check_keys(table, at, [field.name for field in fields])
        # Both are MISSING if there is no default.
        present = [field.name for field in fields if field.name in table or field.default is field.default_factory]
        return {name: self._value(table, (*at, name)) for name in present}

    def _value(self, table: Table, at: Place) -> Any:
        if at[-1] == "options":
            return self._options(table, at) if at[0] == "steps" else self._settings(table, at)
        if at[-1] == "path":
            return self._path(table, at)
        return self._file.value(table, at, _KINDS.get(str(at[-1]), str))

    def _matching(self, key: str, pattern: re.Pattern[str], rule: str, *default: None) -> Any:
        text = self._file.value(self._file.root, (key,), str, *default)
        if text is not None and not pattern.fullmatch(text):
            self._refuse((key,), f"{text!r}: write {rule}")
        return text

    def _trigger(self) -> str | None:
        trigger: str | None = self._file.value(self._file.root, ("trigger",), str, None)
        if trigger is not None and trigger != NOW:
            self._file.check_duration(trigger, ("trigger",), f", or {NOW!r}")
        return trigger

    def _needs(self) -> Needs:
        needs = Needs(**self._values(Needs, self._table("needs"), ("needs",)))
        if not 1 <= needs.cores <= 4096:
            self._refuse(("needs", "cores"), f"{needs.cores}: write a number from 1 to 4096")
        if not _SIZE.fullmatch(needs.memory):
            self._refuse(("needs", "memory"), f"{needs.memory!r}: write a size with its unit, such as '2 GB'")
        return needs

    def _sources(self, kind: str) -> dict[str, Source]:
        sources = {}
        for name, table in self._table(kind).items():
            self._check_identifier(name, (kind, name))
            sources[name] = self._source(self._file.table(table, (kind, name)), (kind, name))
        return sources

    def _source(self, table: Table, at: Place) -> Source:
        source = Source(**self._values(Source, table, at))
        if source.format in ("parquet", TOPIC) and source.path is None:
            self._refuse((*at, "path"), f"is missing; write the path of this {source.format}")
        if source.max_files is not None and source.max_files < 1:
            self._refuse((*at, "max_files"), f"{source.max_files}: write a number of 1 or more")
        if source.watermark is not None:
            self._file.check_duration(source.watermark, (*at, "watermark"))
            if source.time is None:
                self._refuse((*at, "time"), "is missing; a watermark needs the event-time column")
        return source

    def _check_new(self, name: str, streams: list[str], at: Place) -> None:
        """Raise if another stream has the same name. Spark's names are case-insensitive."""
        for other in streams:
            if name.lower() == other.lower():
                also = "" if name == other else ", which is the same name for Spark"
                self._refuse(
                    at, f"{name!r}: there is a source, table or earlier step {other!r}{also}; choose another name"
                )

    def _step(self, table: Table, at: Place, streams: list[str]) -> Step:
        step = Step(**self._values(Step, table, at))
        self._check_identifier(step.name, (*at, "name"))
        self._check_new(step.name, streams, (*at, "name"))
        if (step.sql is None) == (step.python is None):
            self._refuse(at, "a step needs either sql = '...' or python = 'module:function'")
        for stream in step.inputs:
            if stream not in streams:
                self._refuse((*at, "inputs"), f"{stream!r}: no such source or earlier step; use {', '.join(streams)}")
        if step.python is not None:
            module, _, function = step.python.partition(":")
            if not all(_is_identifier(part) for part in (*module.split("."), function)):
                self._refuse((*at, "python"), f"{step.python!r}: write 'module:function'")
            if not step.inputs:
                self._refuse((*at, "inputs"), "is missing; write the streams that the function takes")
            if step.options:
                self._refuse((*at, "options"), "a function has no options, only a step with sql has; remove them")
        elif step.inputs:
            self._refuse((*at, "inputs"), "a step with sql names its streams in the text; remove inputs")
        return dataclasses.replace(step, inputs=tuple(step.inputs))

    def _sink(self, last: str, streams: list[str]) -> Sink:
        at = ("sink",)
        table = self._file.table(self._file.root.get("sink"), at)
        sink = Sink(**{"input": last, **self._values(Sink, table, at)})
        if sink.input not in streams:
            self._refuse((*at, "input"), f"{sink.input!r}: no such source or step; use {', '.join(streams)}")
        if sink.mode not in _MODES:
            self._refuse((*at, "mode"), f"{sink.mode!r}: write {', '.join(_MODES[:-1])} or {_MODES[-1]}")
        if sink.format in ("parquet", TOPIC) and sink.path is None:
            self._refuse((*at, "path"), "is missing; write the path for the results")
        if sink.format == TOPIC and (sink.options or sink.mode != "append"):
            self._refuse(at, "a topic has only the mode 'append' and no options; remove them")
        return sink

    def _table(self, key: str) -> Table:
        return self._file.table(self._file.root.get(key, {}), (key,))

    def _options(self, table: Table, at: Place) -> dict[str, Any]:
        options = self._file.table(table.get(str(at[-1]), {}), at)
        for name, value in options.items():
            if not isinstance(value, _PLAIN):
                self._refuse((*at, name), "write a string, a number, true or false")
        return dict(options)

    def _settings(self, table: Table, at: Place) -> dict[str, str]:
        """Return options of Spark as strings, with the values of environment variables."""
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self._options(table, at).items()
        }
        return {name: self._with_secrets(text, (*at, name)) for name, text in texts.items()}

    def _with_secrets(self, text: str, at: Place) -> str:
        if _UNCLOSED.search(text):
            self._refuse(at, "${ without a name and }; write ${NAME} for an environment variable")
        for variable in _SECRET.findall(text):
            if variable not in self._environment:
                self._refuse(at, f"${{{variable}}}: this environment variable does not exist; set it")
            self._secrets.add(self._environment[variable])
        return _SECRET.sub(lambda match: self._environment[match[1]], text)

    def _path(self, table: Table, at: Place) -> str:
        path: str = self._file.value(table, at, str)
        if "${" in path:
            self._refuse(at, "environment variables are replaced only in options; write the path itself")
        return path

    def _check_identifier(self, name: str, at: Place) -> None:
        if not _is_identifier(name):
            self._refuse(at, f"{name!r}: write a SQL name of letters, digits and underscores")


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
