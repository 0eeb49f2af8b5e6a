"""A kernel bundle that is wrong is refused with the file, the row and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.operators.llmservingsim import read_bundle
from scenarios.errors import InputError
from scenarios.models import model
from tests.calibration.bundles import EXPERTS, MODEL, change, shape_of, write_bundle, write_skew

Edit = Callable[[Path], None]


def scaled(name: str, factor: float) -> Edit:
    def edit(folder: Path) -> None:
        def lines(before: list[str]) -> list[str]:
            cells = [line.rsplit(",", 1) for line in before[1:]]
            return [before[0], *(f"{left},{float(time) * factor:.9g}" for left, time in cells)]

        change(folder / name, lines)

    return edit


def replaced(name: str, old: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return edit


def without(name: str, beginning: str) -> Edit:
    def edit(folder: Path) -> None:
        change(folder / name, lambda lines: [line for line in lines if not line.startswith(beginning)])

    return edit


def written(name: str, text: str) -> Edit:
    return lambda folder: (folder / name).write_text(text) and None


def twice(name: str, line: int) -> Edit:
    return lambda folder: change(folder / name, lambda lines: [*lines, lines[line - 1]])


BROKEN: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "milliseconds by name": (replaced("dense.csv", "time_us", "time_ms"), ("dense.csv: line 1", "found time_ms", "multiply by 1000")),
    "milliseconds of layers": (scaled("dense.csv", 1e-3), ("dense.csv: line", "milliseconds", "multiply by 1000")),
    "milliseconds of the head": (scaled("per_sequence.csv", 1e-3), ("per_sequence.csv: line", "milliseconds")),
    "milliseconds of attention": (scaled("attention.csv", 1e-3), ("attention.csv: line", "milliseconds")),
    "seconds": (scaled("dense.csv", 1e-6), ("dense.csv: line", "in seconds", "multiply by 1e+06")),
    "nanoseconds": (scaled("per_sequence.csv", 1e3), ("per_sequence.csv: line", "nanoseconds", "multiply by 0.001")),
    "missing column": (replaced("attention.csv", "n_decode", "decodes"), ("attention.csv: line 1", "n_decode is missing")),
    "hole": (without("attention.csv", "32,64,4,64,"), ("attention.csv", "prefill_chunk 32, kv_prefill 64, n_decode 4, kv_decode 64", "hole")),
    "hole of prompts": (without("attention.csv", "32,64,0,0,"), ("attention.csv", "prefill_chunk 32, kv_prefill 64", "measure it")),
    "nan": (replaced("dense.csv", "act_fn,8,3.24", "act_fn,8,nan"), ("dense.csv: line", "found nan", "measure the row again")),
    "negative": (replaced("dense.csv", "act_fn,8,3.24", "act_fn,8,-3.24"), ("dense.csv: line", "-3.24", "negative")),
    "no time": (replaced("dense.csv", "act_fn,8,3.24", "act_fn,8,0"), ("dense.csv: line", "no operator takes no time")),
    "infinite": (replaced("dense.csv", "act_fn,8,3.24", "act_fn,8,inf"), ("dense.csv: line", "finite")),
    "words": (replaced("dense.csv", "act_fn,8,3.24", "act_fn,8,fast"), ("dense.csv: line", "found fast", "a number is needed")),
    "blank": (replaced("dense.csv", "act_fn,8,3.24", "act_fn,8,"), ("dense.csv: line", "found nothing")),
    "half a token": (replaced("dense.csv", "act_fn,8,", "act_fn,8.5,"), ("dense.csv", "tokens", "8.5")),
    "half a decode": (replaced("attention.csv", "0,0,2,64,", "0,0,2.5,64,"), ("attention.csv: line", "n_decode", "whole number")),
    "twice": (twice("dense.csv", 5), ("dense.csv: line 74", "stands twice, first in line 5")),
    "empty": (written("dense.csv", ""), ("dense.csv", "empty")),
    "header only": (written("per_sequence.csv", "layer,sequences,time_us\n"), ("per_sequence.csv", "not one row")),
    "cut off": (replaced("attention.csv", "0,0,2,64,", "0,0,2\n0,0,2,64,"), ("attention.csv: line 7", "3 values for 5 columns")),
    "no file": (lambda folder: (folder / "attention.csv").unlink(), ("attention.csv", "no such file")),
    "no layer": (without("dense.csv", "o_proj"), ("dense.csv", "layer o_proj is missing")),
    "a size less": (without("dense.csv", "o_proj,64,"), ("dense.csv", "layer o_proj has no row at tokens 64")),
    "another layer": (replaced("dense.csv", "act_fn,8,", "gdn_conv,8,"), ("dense.csv: line", "gdn_conv", "another model")),
    "beyond any size": (replaced("dense.csv", "act_fn,512,", "act_fn,1e300,"), ("dense.csv: line", "tokens: found 1e300", "at most")),
    "no decodes": (without("attention.csv", "0,"), ("attention.csv", "decodes alone")),
    "no meta": (lambda folder: (folder / "meta.yaml").unlink(), ("meta.yaml", "no such file")),
    "meta not yaml": (written("meta.yaml", "a: [1"), ("meta.yaml", "not YAML")),
    "meta a list": (written("meta.yaml", "- 1\n"), ("meta.yaml", "mapping")),
    "precision": (replaced("meta.yaml", "variant: bf16", "variant: int7"), ("meta.yaml: variant", "int7", "allowed")),
    "not text": (lambda folder: (folder / "dense.csv").write_bytes(b"\xff\xfe\x00\x81") and None, ("dense.csv", "cannot be read as CSV")),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_bundle_is_refused(what: str, tmp_path: Path) -> None:
    edit, said = BROKEN[what]
    edit(write_bundle(tmp_path))
    with pytest.raises(InputError) as refused:
        read_bundle(tmp_path, MODEL)
    for words in said:
        assert words in str(refused.value)


def test_a_bundle_of_another_shape_is_refused_with_what_differs(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    with pytest.raises(
        InputError, match=r"meta.yaml: engine_effective.hf_overrides: .*vocab_size is 32000, but Qwen3-8B has 151936"
    ):
        read_bundle(tmp_path, model("Qwen3-8B"))


def test_a_bundle_without_a_stated_shape_must_have_the_models_name(tmp_path: Path) -> None:
    write_bundle(tmp_path, engine_effective={})
    read_bundle(tmp_path, MODEL)
    with pytest.raises(InputError, match="'org/small', but Qwen3-8B is asked for"):
        read_bundle(tmp_path, model("Qwen3-8B"))


def test_one_rank_of_a_measured_degree_is_the_models_shape(tmp_path: Path) -> None:
    write_bundle(tmp_path, tp_degrees=[1, 2], engine_effective={"hf_overrides": shape_of(MODEL, 2)})
    read_bundle(tmp_path, MODEL)
    write_bundle(tmp_path, tp_degrees=[1], engine_effective={"hf_overrides": shape_of(MODEL, 2)})
    with pytest.raises(InputError, match="num_attention_heads is 4, but small has 8"):
        read_bundle(tmp_path, MODEL)


def test_a_dense_bundle_is_not_of_a_model_with_experts(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    with pytest.raises(InputError, match=r"moe\.csv: no such file"):
        read_bundle(tmp_path, EXPERTS)


def test_a_tensor_parallel_degree_that_nobody_measured_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    with pytest.raises(InputError, match="measured at tensor_parallel_size 1, but 4 is asked for"):
        read_bundle(tmp_path, MODEL, tensor_parallel_size=4)


def test_tensor_parallel_without_times_of_all_reduces_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path, tables=tmp_path / "tp2", tp_degrees=[1, 2])
    with pytest.raises(InputError, match=r"needs the times of all-reduces.*hardware\.yaml"):
        read_bundle(tmp_path, MODEL, tensor_parallel_size=2)


def test_another_attention_kernel_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    change(
        tmp_path / "attention.csv",
        lambda lines: [
            f"{'layer' if i == 0 else 'indexer' if i == 3 else 'attention'},{line}" for i, line in enumerate(lines)
        ],
    )
    with pytest.raises(InputError, match="line 4: layer: found indexer, but only plain attention is modelled"):
        read_bundle(tmp_path, MODEL)


def test_prompts_with_decodes_must_lie_on_the_grid_of_each_alone(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    change(
        tmp_path / "attention.csv",
        lambda lines: [
            line for line in lines if not line.startswith(("16,16,0,", "32,16,0,", "64,16,0,", "128,16,0,"))
        ],
    )
    with pytest.raises(InputError, match="other points than rows with one of them alone"):
        read_bundle(tmp_path, MODEL)


def test_more_experts_than_the_model_has_are_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path, EXPERTS)
    change(tmp_path / "moe.csv", lambda lines: [*lines, "512,64,300"])
    with pytest.raises(InputError, match=r"moe\.csv: activated_experts reaches 64, but small-moe has 16"):
        read_bundle(tmp_path, EXPERTS)


def test_a_skew_table_without_numbers_is_refused(tmp_path: Path) -> None:
    write_skew(write_bundle(tmp_path), 0.1)
    change(tmp_path / "skew.csv", lambda lines: [lines[0], lines[1].rsplit(",", 1)[0] + ",nan", *lines[2:]])
    with pytest.raises(InputError, match=r"skew\.csv: line 2: t_skew_us: found nan"):
        read_bundle(tmp_path, MODEL)
