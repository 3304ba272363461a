"""A job file as a component of a fleet: its stored form, and the job that a peer runs in one epoch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace

from braided.errors import PeerError
from braided.fleet.component_host import Job
from braided.fleet.json_records import MAX_TEXT
from braided.jobs import job_file
from braided.jobs.job_file import NOW, TOPIC
from braided.jobs.job_reader import parse_job

_FILES = ("parquet", TOPIC)
_SQL, _PYTHON = "sql", "python"


class _AnyVariable(dict[str, str]):
    """An environment that has every variable: only peers need the values, not the user who submits a job."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return name


def component_of(text: str, file: str) -> Job:
    """Return the component that a job file describes; its text is stored without replacing variables.

    The file may name its operator. By default this is `sql`, or `python.MODULE` if the job has a step in Python.
    """
    size = len(json.dumps(text))
    if size > MAX_TEXT:
        raise PeerError(f"{file}: has {size} bytes; write a job file of at most {MAX_TEXT}")
    job = parse_job(text, file, _AnyVariable())
    if job.trigger == NOW:
        raise PeerError(
            f"{file}: trigger={NOW!r}: jobs of a fleet run continuously; write an interval, such as '5 seconds'"
        )
    for name, source in {**job.sources, **job.tables}.items():
        _check_path(source.path, f"{file}: {name}.path")
    _check_path(job.sink.path, f"{file}: sink.path")
    _check_path(job.checkpoint, f"{file}: checkpoint")
    modules = modules_of(job)
    return Job(
        job.name,
        job.operator or (f"{_PYTHON}.{modules[0]}" if modules else _SQL),
        tuple(str(source.path) for source in job.sources.values() if source.format in _FILES),
        (str(job.sink.path),) if job.sink.format == TOPIC else (),
        job.checkpoint,
        text,
    )


def job_of(component: Job, checkpoint: str, environment: Mapping[str, str] = os.environ) -> job_file.Job:
    """Return the job that a peer runs with its own checkpoint, which has the routing tables, so they are cloned too."""
    job = parse_job(component.definition, component.name, environment)
    steps = [
        replace(step, options={**step.options, "control": True})
        if isinstance(step.options.get("control"), str)
        else step
        for step in job.steps
    ]
    return replace(
        job,
        name=component.name,
        checkpoint=checkpoint,
        sources=_at(job.sources, component.inputs),
        sink=replace(job.sink, path=component.outputs[0]) if component.outputs else job.sink,
        steps=tuple(steps),
    )


def _at(sources: Mapping[str, job_file.Source], inputs: tuple[str, ...]) -> dict[str, job_file.Source]:
    """Return a job's sources at the locations that its component reads; in an application these may differ."""
    named = [name for name, source in sources.items() if source.format in _FILES]
    paths = dict(zip(named, inputs, strict=bool(named)))
    return {name: replace(source, path=paths.get(name, source.path)) for name, source in sources.items()}


def modules_of(job: job_file.Job) -> list[str]:
    """Return the modules of a job's steps in Python."""
    return [step.python.partition(":")[0] for step in job.steps if step.python is not None]


def _check_path(path: str | None, what: str) -> None:
    if path is not None and "://" not in path and not os.path.isabs(path):
        raise PeerError(f"{what}={path!r}: write an absolute path; peers run in other directories")
