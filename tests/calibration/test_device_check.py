"""The device check runs to its end on a CPU, goes on where it stopped, says what it skips, and needs only what a GPU image has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from calibration import device_sections
from calibration.calibrate import Calibration
from calibration.device_check import main
from calibration.device_lab import FULL, REDUCED, Lab, Size
from calibration.device_sections import SECTIONS, step_floor, step_shapes, workload_of
from calibration.measure import grid
from scenarios.models import CATALOG
from serving.plan import StepShape
from sim.profiles import load_profile
from sim.replay import ReplayReport

ROOT = Path(__file__).parents[2]

# What the GPU image may lack; the kernels and engines that the check runs need none of it.
ABSENT = ("scipy", "yaml", "pyarrow", "numba", "plotly", "typer", "rich", "streamlit", "transformers", "gguf", "safetensors", "tokenizers")  # fmt: skip
BLOCKED = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


class Ran(NamedTuple):
    """A run of the command: its folder, the process, and the sections as it left them."""

    out: Path
    done: subprocess.CompletedProcess[str]
    sections: dict[str, dict[str, Any]]


def run(out: Path, *options: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, without the interpreter."""
    program = f"{before}\nimport sys\nfrom calibration.device_check import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "--device", "cpu", "--out", str(out), *options]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=240)


def section(out: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return found


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All of it, on a machine that has only what a GPU image has."""
    out = tmp_path_factory.mktemp("check")
    done = run(out, before=BLOCKED)
    return Ran(out, done, {name: section(out, name) for name in SECTIONS})


@pytest.fixture(scope="module")
def second(first: Ran) -> Ran:
    """The same command on a machine that has everything, after the file of one section was truncated."""
    path = first.out / "steps.json"
    path.write_text(path.read_text()[:-50])
    done = run(first.out)
    return Ran(first.out, done, {name: section(first.out, name) for name in SECTIONS})


def test_all_that_a_gpu_image_can_do_is_done(first: Ran) -> None:
    assert first.done.returncode == 0, first.done.stdout + first.done.stderr
    for name, found in first.sections.items():
        assert f"== {name} (" in first.done.stdout
        assert found["rows"], name
        assert not found["failed"], name
        assert found["complete"] == (name not in ("grid", "live")), name
    assert "kernels: all correct" in first.done.stdout
    assert all(row["correct"] for row in first.sections["kernels"]["rows"].values())
    runs = [row for row in first.sections["live"]["rows"].values() if "schedule" in row]
    assert [row["schedule"]["identical"] for row in runs] == [True, True]


def test_without_scipy_measurements_are_kept_and_what_is_missing_is_named(first: Ran) -> None:
    missing = first.sections["grid"]["skipped"] | first.sections["live"]["skipped"]
    assert missing == {
        f"profile of {REDUCED.rounds} rounds": "SciPy, which fits it, is not installed here; the measurements are kept: run this "
        "section again where it is",
        "prediction of 2 executions": "there is no profile to predict with: section grid has none",
    }
    assert all(reason in first.done.stdout for reason in missing.values())


def test_a_second_run_does_only_what_is_missing(first: Ran, second: Ran) -> None:
    assert second.done.returncode == 0, second.done.stdout + second.done.stderr
    assert all(found["complete"] for found in second.sections.values())
    for name in ("environment", "ceilings", "kernels", "kernel_times"):
        assert second.sections[name] == first.sections[name]
    for name in ("grid", "live"):
        assert second.sections[name]["rows"].items() >= first.sections[name]["rows"].items()


def test_a_truncated_file_is_noticed_and_its_section_measured_again(first: Ran, second: Ran) -> None:
    assert f"{second.out / 'steps.json'}: not a whole result file (truncated?)" in second.done.stderr
    before, after = (found.sections["steps"]["rows"] for found in (first, second))
    assert after.keys() == before.keys()
    assert after != before


def test_the_profile_is_one_that_the_simulator_loads(second: Ran) -> None:
    profile = load_profile(second.out / "device-check-tiny-float32.json")
    assert (profile.model, profile.source.device, profile.source.clock) == ("device-check-tiny", "cpu", "device")
    assert [m.shape for m in profile.measurements] == grid(REDUCED.engine, REDUCED.grid)
    assert {m.repeats for m in profile.measurements} == {REDUCED.rounds}
    predictions = [name for name in second.sections["live"]["rows"] if name.startswith("prediction")]
    assert predictions == [f"prediction of 2 executions by profile {profile.hash()}"]


def test_what_does_not_fit_the_budget_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--device", "cpu", "--budget-s", "0.001", "--section", "ceilings", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "skipped: copy; matmul: takes about 1.0 s, and 0.0 s of the budget of 0 s are left" in said
    assert section(tmp_path, "ceilings")["skipped"].keys() == {"copy", "matmul"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--device", "tpu"], "error: --device: found 'tpu', allowed: cpu, cuda"),
        (["--section", "moon"], "error: --section: found 'moon', allowed: environment, ceilings, kernels"),
        (["--budget-s", "0"], "error: --budget-s: found 0, allowed: above 0"),
        (["--budget-s", "nan"], "error: --budget-s: found nan, allowed: above 0"),
    ],
)
def test_bad_options_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    assert main(["--device", "cpu", "--out", str(tmp_path), *options]) == 2
    assert problem in capsys.readouterr().err


def test_a_device_that_is_not_there_is_told_and_nothing_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_backend.checks import ceilings

    monkeypatch.setattr(ceilings, "is_there", lambda device: False)
    assert main(["--device", "cuda", "--section", "kernels", "--out", str(tmp_path)]) == 2
    assert "sees no CUDA device here" in capsys.readouterr().err
    (tmp_path / "environment.json").write_text("{}")  # as if something had been measured elsewhere
    assert main(["--device", "cuda", "--section", "kernels", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "there is no cuda device here" in said
    assert "kernels: not checked: rms_norm" in said


def test_an_interruption_prints_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_backend.checks import ceilings

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ceilings, "matmul_rate", interrupt)
    assert main(["--device", "cpu", "--section", "ceilings", "--section", "environment", "--out", str(tmp_path)]) == 130
    captured = capsys.readouterr()
    assert "== environment" in captured.out
    assert "TB/s (read and written)" in captured.out
    assert "the same command goes on from there" in captured.err
    assert section(tmp_path, "ceilings")["rows"].keys() == {"copy"}


def test_a_wrong_kernel_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_backend.checks import kernel_cases
    from gpu_backend.checks.kernel_checks import Check

    wrong = Check("silu_mul", "any", "float32", 0.1, lambda bench: bench.require(False, "off by one"))
    monkeypatch.setattr(kernel_cases, "checks", lambda size: iter([wrong]))
    assert main(["--device", "cpu", "--section", "kernels", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "WRONG silu_mul: any, float32, seed" in said
    assert "off by one" in said
    assert "kernels: WRONG: silu_mul; not checked: rms_norm, rope" in said


def test_a_kernel_that_cannot_run_fails_the_check_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_backend.checks import kernel_cases
    from gpu_backend.checks.kernel_checks import Bench, Check

    tries = []

    def body(bench: Bench) -> None:
        tries.append(bench)
        raise RuntimeError("illegal memory access")

    monkeypatch.setattr(kernel_cases, "checks", lambda size: iter([Check("silu_mul", "any", "float32", 0.1, body)]))
    for _ in range(2):
        assert main(["--device", "cpu", "--section", "kernels", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "failed: silu_mul: any, float32: RuntimeError: illegal memory access" in said
    assert "kernels: cannot run: silu_mul; not checked: rms_norm" in said
    assert len(tries) == 2


def test_a_schedule_that_differs_is_told(first: Ran) -> None:
    from calibration.device_table import text
    from calibration.resumable import Result

    row = next(r for r in first.sections["live"]["rows"].values() if "schedule" in r)
    row["schedule"] = ReplayReport(False, 7, "step 7: sampled recorded 1, decided 2").__dict__
    assert "schedule of 7 steps replayed: DIFFERENT (step 7: sampled recorded 1, decided 2)" in text(
        {"live": Result({"execution 1": row})}
    )


def test_floors_of_steps_are_the_bytes_and_flop_of_the_model() -> None:
    llama = CATALOG["Llama-3.1-8B"]
    shape = StepShape((), 64, 64 * 4096, 4096, 64)
    found = step_floor(llama, shape, "bfloat16", "bfloat16", 4.3e12, 7.9e14)
    embeddings = 128256 * 4096
    weights = 2 * (llama.parameters() - embeddings)  # the embeddings are looked up, the head is read
    assert found["bytes"] == weights + 64 * 4097 * 131072
    assert found["floor"] == found["bytes"] / 4.3e12
    assert found["flop"] == pytest.approx(2 * 64 * (llama.parameters() - embeddings) + 64 * 4097 * 4 * 32 * 4096)
    quarter = step_floor(llama, shape, "int4", "bfloat16", 4.3e12, 7.9e14)
    assert quarter["bytes"] == (weights - 2 * embeddings) / 4 + 2 * embeddings + 64 * 4097 * 131072
    tied = CATALOG["Qwen3-0.6B"]
    assert step_floor(tied, StepShape(((8192, 0),), sampled=1), "bfloat16", "bfloat16", 4.3e12, 7.9e14)["bytes"] == (
        2 * tied.parameters() + 8192 * tied.kv_bytes_per_token()
    )
    long = step_floor(llama, StepShape(((8192, 0),), sampled=1), "bfloat16", "bfloat16", 4.3e12, 7.9e14)
    assert long["floor"] == long["flop"] / 7.9e14


@pytest.mark.parametrize("size", [FULL, REDUCED], ids=["full", "reduced"])
def test_steps_grid_and_requests_fit_the_engine(size: Size) -> None:
    engine = size.engine
    for shape in step_shapes(size).values():
        assert shape.tokens <= engine.max_num_batched_tokens
        assert shape.decode_sequences + len(shape.prefill) <= engine.max_num_seqs
        assert max((q + c for q, c in shape.prefill), default=0) <= engine.max_model_len
        blocks = shape.decode_sequences * (shape.decode_max_context // engine.block_size + 1)
        assert blocks + sum(-(-(q + c) // engine.block_size) for q, c in shape.prefill) <= engine.usable_blocks
    workload = workload_of(size)
    assert len(workload) == size.requests
    assert engine.fits(workload.prompt_tokens, workload.max_tokens).all()


def test_all_that_a_gpu_runs_fits_its_memory() -> None:
    """139 GiB, of which weights, KV and the workspace of a step may take nine tenths."""
    for spec in FULL.models:
        kv = FULL.engine.num_gpu_blocks * FULL.engine.block_size * spec.kv_bytes_per_token()
        assert kv + spec.weight_bytes() + 6e9 < 0.9 * 139 * 2**30


def test_rounds_of_an_earlier_run_make_the_profile_that_they_would_have_made() -> None:
    """Repeated durations go through the same calibration, in the same order."""
    shapes = grid(REDUCED.engine, "quick")
    spec = REDUCED.models[-1]

    class Steady:
        def measure(self, shape: StepShape) -> int:
            return 1000 * shape.tokens + 10 * shape.decode_context + 5000

        def info(self) -> dict[str, object]:
            return {"device": "cpu", "clock": "device", "dtype": "float32"}

    plain = Calibration(Steady(), name="x", model=spec.name, engine=REDUCED.engine, shapes=shapes)
    recorded = device_sections._Recorded(Lab("cpu", REDUCED), spec)
    again = Calibration(recorded, name="x", model=spec.name, engine=REDUCED.engine, shapes=shapes)
    for _ in range(3):
        before = len(plain._rounds._times)
        for _ in range(plain.steps):
            plain.step()
        recorded.before = plain._rounds._times[before:][::-1]
        for _ in range(again.steps):
            again.step()
    recorded.described = Steady().info()
    assert again.profile().measurements == plain.profile().measurements
