"""Applications as files: job files that read each other's topics, with a bound on latency.

```toml
application = "fraud"
latency = "5 seconds"         # that an event may take on the longest path

[[jobs]]
file = "hits.toml"            # beside this file
seconds = 0.4                 # of a batch on an idle peer
cores = 0.5                   # that it needs
```

The paths of topics determine which job reads the results of which. In the fleet the topics are below its storage.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from braided.durations import parse_duration
from braided.errors import BraidedError, PeerError
from braided.fleet.composition import Application, Step
from braided.fleet.definition import component_of
from braided.fleet.json_records import Record
from braided.jobs.toml_file import TomlFile, read_text

_KEYS = ("application", "latency", "jobs")
_JOB_KEYS = ("file", "seconds", "cores")


class StepFile(Record):
    """A job file of an application."""

    text: str
    file: str
    seconds: float = 0.0
    cores: float = 0.0


@dataclass(frozen=True)
class ApplicationFile:
    """An application as its file defines it."""

    name: str
    latency: float
    steps: tuple[StepFile, ...]

    def application(self) -> Application:
        """Return its steps. An input is the name of a step, if this step writes it, else a topic or source."""
        components = [component_of(step.text, step.file) for step in self.steps]
        writes = {component.outputs[0]: component.name for component in components if component.outputs}
        for component in components:
            if not component.outputs:
                raise PeerError(f"job={component.name!r}: steps of an application write topics; write format = 'topic'")
        steps = [
            Step(
                component.name,
                component.operator,
                tuple(writes.get(path, path) for path in component.inputs) or ("elsewhere",),
                component.definition,
                step.seconds,
                step.cores,
            )
            for component, step in zip(components, self.steps, strict=True)
        ]
        return Application(self.name, tuple(steps), self.latency)


def is_application(text: str) -> bool:
    """Whether a file describes an application, not a job."""
    try:
        return "application" in tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False  # the error is reported when it is read as a job


def read_application(path: Path) -> ApplicationFile:
    """Return the application in a file, with the job files that it names in the same folder."""
    file = TomlFile(read_text(path), str(path))
    file.check_keys(file.root, (), _KEYS)
    name, latency, jobs = (file.root.get(key) for key in _KEYS)
    if not isinstance(name, str):
        file.refuse(("application",), "write a name")
    try:
        seconds = parse_duration(latency, "latency") / 1_000_000
    except BraidedError:
        file.refuse(("latency",), f"{latency!r}: write a duration, such as '5 seconds'")
    if not isinstance(jobs, list) or not jobs:
        file.refuse(("jobs",), "write a table [[jobs]] for each job file")
    return ApplicationFile(name, seconds, tuple(_step(path, file, table, at) for at, table in enumerate(jobs)))


def _step(path: Path, file: TomlFile, table: Any, number: int) -> StepFile:
    at = ("jobs", number)
    if isinstance(table, dict):
        file.check_keys(table, at, _JOB_KEYS)
    if not isinstance(table, dict) or not isinstance(table.get("file"), str):
        file.refuse((*at, "file"), "write the name of a job file")
    numbers = [table.get(key, 0) for key in _JOB_KEYS[1:]]
    for key, value in zip(_JOB_KEYS[1:], numbers, strict=True):
        if type(value) not in (int, float) or value < 0:
            file.refuse((*at, key), f"{value!r}: write a number of 0 or more")
    job = path.parent / table["file"]
    return StepFile(read_text(job), str(job), *map(float, numbers))
