"""The ten commands of docs/how-to/production.md, typed in an empty home with the package of this clone. They need Debian's prometheus."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on the path")


def _commands() -> list[str]:
    page = (ROOT / "docs" / "how-to" / "production.md").read_text(encoding="utf-8")
    return re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0].strip().splitlines()


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def _is_shown(port: str) -> bool:
    query = urllib.parse.urlencode({"query": 'braided_job_state{fleet_job="ticks",state="running"} == 1'})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=5) as answer:
            return bool(json.load(answer)["data"]["result"])
    except OSError:
        return False


def test_ten_commands_from_an_empty_home_show_a_job(tmp_path: Path) -> None:
    commands = _commands()
    assert len(commands) == 10
    script = "\n".join(commands[3:])  # a virtual environment with the package is here already
    ports = {port: _free_port() for port in ("7401", "7402", "9464", "9465", "9090")}
    for port, free in ports.items():
        script = script.replace(port, free)
    # The defaults are the ports that were replaced.
    north = f"127.0.0.1:{ports['7401']}"
    script = script.replace("--name north", f"--name north --listen {north}")
    (tmp_path / "braided").mkdir()
    (tmp_path / "braided" / "bin").symlink_to(Path(os.environ["VIRTUAL_ENV"]) / "bin")
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "BRAIDED_PEER": north,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    shell = subprocess.Popen(
        ["bash", "-c", f"set -e\n{script}\nwait"], cwd=tmp_path, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        ends = time.monotonic() + PATIENCE
        while not _is_shown(ports["9090"]):
            assert time.monotonic() < ends, [file.read_text()[-2000:] for file in tmp_path.glob("*.log")]
            assert shell.poll() is None, shell.communicate()[0]
            time.sleep(1)
    finally:
        _end(shell)


def _end(shell: subprocess.Popen[str]) -> None:
    """End a shell and all that it has started: in order, and by force what is left after a minute."""
    ends = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGTERM)
        while time.monotonic() < ends:
            shell.poll()
            os.killpg(shell.pid, 0)
            time.sleep(0.5)
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait(30)
