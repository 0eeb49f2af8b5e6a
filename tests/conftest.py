"""What all tests share: interpreted Triton kernels (why, and how they are compiled: tests/gpu_backend/kernels/conftest.py), and the
`servetwin` command."""

import os
from collections.abc import Callable

import hypothesis
import pytest

os.environ["TRITON_INTERPRET"] = "1"
hypothesis.settings.register_profile("untimed", deadline=None)  # machines are busy at times
hypothesis.settings.load_profile("untimed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests have timed, wherever they ran."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, text in report.user_properties:
            if name == "timed":
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(text)


@pytest.fixture
def servetwin(capsys, monkeypatch, tmp_path) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in an empty folder: (exit code, stdout, stderr)."""
    import cli

    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call
