"""Vidur's profiling tables compose to step costs; tables that are wrong are refused with file, row and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from calibration.operators.vidur import read_vidur
from scenarios.errors import InputError
from scenarios.hardware import hardware
from scenarios.models import model
from serving.plan import StepShape
from sim.operator_cost import OperatorCost
from sim.operator_profile import OperatorProfile
from tests.calibration.bundles import EXPERTS, MODEL, change, write_rows

DEVICE = hardware("A100-80G")
LAYERS = MODEL.num_layers
TOKENS = (1, 8, 16, 64, 128, 256)
CHUNKS = (32, 64, 128)
LONGEST = 256
BATCHES = (1, 2, 4, 8)
CONTEXTS = (0, 64, 128, 256)

OPERATORS = {
    "emb": (0.002, 1e-5), "input_layernorm": (0.002, 2e-5), "attn_pre_proj": (0.01, 1e-4), "attn_rope": (0.002, 1e-5),
    "attn_post_proj": (0.008, 1e-4), "post_attention_layernorm": (0.002, 2e-5), "mlp_up_proj": (0.04, 4e-4),
    "mlp_act": (0.003, 3e-5), "mlp_down_proj": (0.02, 2e-4), "add": (0.001, 1e-5),
}  # fmt: skip
"""Milliseconds: fixed, and a token."""

SIZES = {"n_head": 8, "n_kv_head": 4, "n_embd": 1024, "n_expanded_embd": 4096, "vocab_size": 32000}


def prefill_ms(query: float, context: float) -> float:
    return 0.01 + 1e-5 * query + 1e-6 * query * (context + query / 2)


def decode_ms(batch: float, context: float) -> float:
    return 0.006 + 1e-4 * batch + 1e-6 * batch * context


def save_ms(tokens: float) -> float:
    return 0.002 + 1e-6 * tokens


def write_vidur(root: Path, size: int = 1) -> Path:
    """`compute/a100/org/small` and `network/a100_dgx` under a root; the folder of the former."""
    folder = root / "compute" / "a100" / "org" / "small"
    folder.mkdir(parents=True, exist_ok=True)
    names = list(OPERATORS)
    header = [f"time_stats.{name}.{kind}" for name in names for kind in ("min", "median")]
    rows: list[Iterable[object]] = []
    for workers in {1, size}:
        for tokens in (*TOKENS, TOKENS[-1]):
            times = [v for name in names for v in (0.0, OPERATORS[name][0] + OPERATORS[name][1] * tokens)]
            rows.append([*times, *SIZES.values(), True, tokens, workers])
    write_rows(
        folder / "mlp.csv", [*header, *SIZES, "use_gated_mlp", "num_tokens", "num_tensor_parallel_workers"], rows
    )
    header = ["time_stats.attn_kv_cache_save.median", "time_stats.attn_prefill.median", "time_stats.attn_decode.median"]
    header += ["n_embd", "n_q_head", "n_kv_head", "block_size", "num_tensor_parallel_workers"]
    header += ["batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill", "attention_backend"]
    rows = []
    for workers in {1, size}:
        fixed = [1024, 8, 4, 16, workers]
        for query in CHUNKS:
            for context in range(0, LONGEST - query + 1, query):
                rows.append([save_ms(query), prefill_ms(query, context), "", *fixed, 1, query, context, True, "X"])
        for batch in BATCHES:
            for context in CONTEXTS:
                rows.append([save_ms(batch), "", decode_ms(batch, context), *fixed, batch, 0, context, False, "X"])
    write_rows(folder / "attention.csv", header, rows)
    network = root / "network" / "a100_dgx"
    network.mkdir(parents=True, exist_ok=True)
    header = ["", "time_stats.all_reduce.median", "rank", "num_workers", "size", "collective", "devices_per_node"]
    write_rows(
        network / "all_reduce.csv",
        header,
        [(i, 0.02 + 1e-4 * t, 0, 2, 2048 * t, "all_reduce", 2) for i, t in enumerate((1, 64, 256))],
    )
    return folder


def rows_us(profile: OperatorProfile, tokens: int, sampled: int) -> float:
    once = OPERATORS["emb"]
    layer = sum(a + b * tokens for name, (a, b) in OPERATORS.items() if name != "emb") + save_ms(tokens)
    head = profile.head.ns[0] / 1e3
    return (LAYERS * layer + once[0] + once[1] * tokens) * 1e3 + head


def us(profile: OperatorProfile, shape: StepShape) -> float:
    return OperatorCost(profile).step_ns(shape) / 1e3


def test_a_decode_step_is_the_sum_of_its_operators(tmp_path: Path) -> None:
    profile = read_vidur(write_vidur(tmp_path), MODEL, DEVICE)
    found = us(profile, StepShape((), 4, 4 * 128, 128, 4))
    assert found == pytest.approx(rows_us(profile, 4, 4) + LAYERS * decode_ms(4, 128) * 1e3, rel=2e-3)


def test_a_chunk_costs_what_it_does_behind_its_context_and_beyond_it_the_last_slope(tmp_path: Path) -> None:
    profile = read_vidur(write_vidur(tmp_path), MODEL, DEVICE)
    for query, context in ((64, 64), (64, 96), (128, 128), (128, 192), (96, 128)):
        found = us(profile, StepShape(((query, context),), 0, 0, 0, 1))
        assert found == pytest.approx(rows_us(profile, query, 1) + LAYERS * prefill_ms(query, context) * 1e3, rel=4e-3)


def test_rows_that_stand_twice_are_second_measurements(tmp_path: Path) -> None:
    folder = write_vidur(tmp_path)
    once = read_vidur(folder, MODEL, DEVICE)
    change(folder / "attention.csv", lambda lines: [*lines, *lines[1:4]])
    assert read_vidur(folder, MODEL, DEVICE).prefill_attention == once.prefill_attention


def test_several_devices_pay_for_two_all_reduces_a_layer(tmp_path: Path) -> None:
    profile = read_vidur(write_vidur(tmp_path, 2), MODEL, DEVICE, tensor_parallel_size=2)
    assert OperatorCost(profile).terms(StepShape((), 64, 0, 0, 64))["all-reduce"] == pytest.approx(
        2 * LAYERS * (0.02 + 0.0064) * 1e6
    )
    assert profile.tensor_parallel_size == 2


def test_the_head_is_priced_by_the_sheet_and_listed_as_a_constant(tmp_path: Path) -> None:
    profile = read_vidur(write_vidur(tmp_path), MODEL, DEVICE)
    read = 32000 * 1024 * 2 / (DEVICE.memory_bandwidth * DEVICE.memory_efficiency) * 1e9
    assert profile.head.ns[0] == pytest.approx(read, abs=1)
    assert [constant.name for constant in profile.constants] == ["memory_efficiency"]


Edit = Callable[[Path], None]


def replaced(name: str, old: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return edit


def scaled(name: str, factor: float, columns: slice) -> Edit:
    def edit(folder: Path) -> None:
        def lines(before: list[str]) -> list[str]:
            rows = [line.split(",") for line in before]
            for row in rows[1:]:
                row[columns] = [f"{float(cell) * factor:.9g}" if cell else "" for cell in row[columns]]
            return [",".join(row) for row in rows]

        change(folder / name, lines)

    return edit


def without(name: str, wanted: Callable[[str], bool]) -> Edit:
    return lambda folder: change(folder / name, lambda lines: [line for line in lines if not wanted(line)])


BROKEN: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "microseconds": (scaled("mlp.csv", 1e3, slice(0, 20)), ("mlp.csv: line", "in microseconds", "multiply by 0.001")),
    "seconds": (scaled("mlp.csv", 1e-3, slice(0, 20)), ("mlp.csv: line", "in seconds", "multiply by 1000")),
    "seconds of attention": (scaled("attention.csv", 1e-5, slice(0, 3)), ("attention.csv: line", "decodes read keys and values")),
    "missing column": (replaced("mlp.csv", "mlp_act.median", "mlp_act.mean"), ("mlp.csv: line 1", "time_stats.mlp_act.median is missing")),
    "hole of decodes": (without("attention.csv", lambda line: ",2,0,64,False" in line), ("attention.csv", "batch_size 2, kv_cache_size 64")),
    "no chunk alone": (without("attention.csv", lambda line: ",1,64,0,True" in line), ("attention.csv", "prefill_chunk_size 64 has no row at 0")),
    "nan": (replaced("mlp.csv", "0.1424", "nan"), ("mlp.csv", "found nan", "finite")),
    "negative": (replaced("attention.csv", "0.0061", "-0.0061"), ("attention.csv: line", "negative")),
    "nothing measured": (replaced("attention.csv", "0.0061", ""), ("attention.csv: line", "this row is of attn_decode")),
    "half a token": (replaced("mlp.csv", "True,8,", "True,8.5,"), ("mlp.csv: line", "num_tokens: found 8.5")),
    "no decodes": (without("attention.csv", lambda line: "False" in line), ("attention.csv", "not one row with attn_decode")),
    "empty": (lambda folder: (folder / "mlp.csv").write_text("") and None, ("mlp.csv", "empty")),
    "no file": (lambda folder: (folder / "attention.csv").unlink(), ("attention.csv", "no such file")),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_broken_tables_are_refused(what: str, tmp_path: Path) -> None:
    edit, said = BROKEN[what]
    folder = write_vidur(tmp_path)
    edit(folder)
    with pytest.raises(InputError) as refused:
        read_vidur(folder, MODEL, DEVICE)
    for words in said:
        assert words in str(refused.value)


def test_tables_of_another_model_are_refused_with_what_differs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mlp\.csv: no row is of Llama-3\.1-8B: n_head 8 instead of 32"):
        read_vidur(write_vidur(tmp_path), model("Llama-3.1-8B"), DEVICE)


def test_a_degree_that_nobody_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="num_tensor_parallel_workers 1 instead of 4"):
        read_vidur(write_vidur(tmp_path), MODEL, DEVICE, tensor_parallel_size=4)


def test_tensor_parallel_without_all_reduces_of_so_many_ranks_is_refused(tmp_path: Path) -> None:
    folder = write_vidur(tmp_path, 2)
    table = tmp_path / "network" / "a100_dgx" / "all_reduce.csv"
    change(table, lambda lines: [line.replace(",2,", ",8,") for line in lines])
    with pytest.raises(
        InputError, match=r"needs all-reduces of 2 ranks in one node, and there are none in .*all_reduce\.csv"
    ):
        read_vidur(folder, MODEL, DEVICE, tensor_parallel_size=2)


@pytest.mark.parametrize(("factor", "said"), [(1e3, "divide by 1000"), (1e-3, "multiply by 1000")])
def test_all_reduces_in_another_unit_are_refused(factor: float, said: str, tmp_path: Path) -> None:
    folder = write_vidur(tmp_path, 2)
    header = ["time_stats.all_reduce.median", "num_workers", "size", "collective", "devices_per_node"]
    rows = [(factor * (0.02 + size * 1e-8), 2, size, "all_reduce", 2) for size in (2048, 2**20, 2**27)]
    write_rows(tmp_path / "network" / "a100_dgx" / "all_reduce.csv", header, rows)
    with pytest.raises(InputError, match=rf"all_reduce\.csv: line 4: .*which no link does; .*{said}"):
        read_vidur(folder, MODEL, DEVICE, tensor_parallel_size=2)


def test_models_with_experts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="small-moe has experts, which Vidur's tables do not hold"):
        read_vidur(write_vidur(tmp_path), EXPERTS, DEVICE)
