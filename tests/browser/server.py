"""A dashboard of its own for a test: `servetwin app` in a folder, from its start until nothing of it is left."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

PATIENCE = 180.0
"""Seconds that a crowded machine may take to start a server, or to end one."""


@dataclass(frozen=True)
class Server:
    """url: with a slash at its end. workspace: its folder. log: what it printed."""

    url: str
    workspace: Path
    log: Path
    process: psutil.Popen

    def workers(self) -> list[psutil.Process]:
        """The processes in which it simulates."""
        return [child for child in self.process.children(recursive=True) if "dashboard.worker" in _command(child)]

    def stop(self) -> None:
        """Ends it as Ctrl-C or a service's manager would; none of its processes may be left."""
        mine = [self.process, *self.process.children(recursive=True)]
        self.process.terminate()
        _, alive = psutil.wait_procs(mine, PATIENCE)
        left = [f"{process.pid}: {_command(process)}" for process in alive]
        for process in alive:
            process.kill()
        assert not left, f"left running: {left}"


def start(workspace: Path) -> Server:
    """A server that answers. workspace: an empty folder."""
    command = shutil.which("servetwin", path=str(Path(sys.executable).parent))
    assert command is not None, "servetwin is not installed beside this Python"
    port = free_port()
    log = workspace.with_name(f"{workspace.name}.log")
    with log.open("wb") as out:
        process = psutil.Popen(
            [command, "app", "--no-browser", "--port", str(port), "--workspace", str(workspace)],
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONWARNINGS": "default"},
        )
    server = Server(f"http://localhost:{port}/", workspace, log, process)
    until(lambda: process.poll() is not None or _answers(server.url), "the server answers")
    assert process.poll() is None, f"the server ended: {log.read_text(encoding='utf-8')}"
    return server


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for something outside the browser. what: it is, in words."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}_stcore/health", timeout=5) as answer:
            healthy: bool = answer.status == 200
            return healthy
    except (urllib.error.URLError, OSError):
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
