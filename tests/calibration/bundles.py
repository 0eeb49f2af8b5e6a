"""A kernel bundle of a small model, written by the tests: times follow simple laws, so that a step's cost is known."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from scenarios.models import ModelSpec

MODEL = ModelSpec("small", 1024, 4096, 4, 8, 4, 128, 32000)
EXPERTS = ModelSpec(
    "small-moe",
    1024,
    4096,
    4,
    8,
    4,
    128,
    32000,
    qk_norm=True,
    num_experts=16,
    num_experts_per_tok=2,
    moe_intermediate_size=512,
)

TOKENS = (1, 8, 16, 32, 64, 128, 256, 512)
ROWS = (1, 2, 4, 8, 16, 32)
CHUNKS = (16, 32, 64, 128)
CONTEXTS = (0, 16, 64, 256, 1024)
DECODES = (1, 2, 4, 8, 16)
LENGTHS = (16, 64, 256, 1024)

KERNELS: Mapping[str, tuple[float, float]] = {
    "embedding": (3.0, 0.01),
    "layernorm": (2.0, 0.02),
    "qkv_proj": (10.0, 0.10),
    "rotary_emb": (2.0, 0.01),
    "o_proj": (8.0, 0.08),
    "gate_up_proj": (40.0, 0.40),
    "act_fn": (3.0, 0.03),
    "down_proj": (20.0, 0.20),
    "final_layernorm": (2.0, 0.01),
}
"""Microseconds of each kernel: fixed, and a token."""

HEAD: Mapping[str, tuple[float, float]] = {"lm_head": (100.0, 0.5), "sampler": (20.0, 0.25)}


def prompt_us(query: float, context: float) -> float:
    return 5.0 + 0.02 * query + 0.001 * query * (context + query / 2.0)


def decode_us(sequences: float, context: float) -> float:
    return 6.0 + 0.1 * sequences + 0.01 * sequences * context


def both_us(query: float, context: float, sequences: float, length: float) -> float:
    return prompt_us(query, context) + 1.5 * decode_us(sequences, length)


def shape_of(model: ModelSpec, degree: int = 1) -> dict[str, int]:
    stated = {
        "num_hidden_layers": 1,
        "intermediate_size": model.intermediate_size // degree,
        "num_attention_heads": model.num_heads // degree,
        "num_key_value_heads": max(1, model.num_kv_heads // degree),
        "vocab_size": model.vocab_size // degree,
    }
    return stated | ({"num_experts": model.num_experts} if model.num_experts else {})


def write_bundle(folder: Path, model: ModelSpec = MODEL, *, tables: Path | None = None, **meta: Any) -> Path:
    """Writes `meta.yaml` into the folder and the tables into `tables`, the folder itself if not given."""
    tables = folder if tables is None else tables
    tables.mkdir(parents=True, exist_ok=True)
    stated = {
        "vllm_version": "0.19.0",
        "gpu": "Testing GPU",
        "hardware": "TESTING",
        "model": f"org/{model.name}",
        "variant": "bf16",
        "tp_degrees": [1],
        "engine_effective": {"hf_overrides": shape_of(model)},
    }
    (folder / "meta.yaml").write_text(yaml.safe_dump(stated | meta))
    kernels = dict(KERNELS)
    if model.qk_norm:
        kernels["qk_norm"] = (1.5, 0.01)
    if model.num_experts:
        for name in ("gate_up_proj", "act_fn", "down_proj"):
            del kernels[name]
        rows = [(t, e, 10.0 + 4.0 * e + 0.1 * t) for t in TOKENS for e in (2, 4, 8, 16) if e <= 2 * t]
        write_rows(tables / "moe.csv", ("tokens", "activated_experts", "time_us"), rows)
    write_rows(
        tables / "dense.csv",
        ("layer", "tokens", "time_us"),
        [(k, t, a + b * t) for k, (a, b) in kernels.items() for t in TOKENS],
    )
    write_rows(
        tables / "per_sequence.csv",
        ("layer", "sequences", "time_us"),
        [(k, n, a + b * n) for k, (a, b) in HEAD.items() for n in ROWS],
    )
    write_rows(
        tables / "attention.csv", ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"), attention_rows()
    )
    return folder


def attention_rows() -> list[tuple[float, ...]]:
    rows = [(0, 0, n, k, decode_us(n, k)) for n in DECODES for k in LENGTHS]
    rows += [(q, c, 0, 0, prompt_us(q, c)) for q in CHUNKS for c in CONTEXTS]
    rows += [(q, c, n, k, both_us(q, c, n, k)) for q in CHUNKS for c in CONTEXTS for n in DECODES for k in LENGTHS]
    return rows


def write_skew(folder: Path, alpha: float, iterations: int = 1) -> None:
    """Decodes, one of four at four times the length of the others; sums over so many iterations."""
    rows = []
    for n in (4, 8, 16):
        for short in (64, 256):
            mean, longest = decode_us(n, 1.75 * short), decode_us(n, 4.0 * short)
            skewed = mean + alpha * (longest - mean)
            rows.append(("pure", n, 0, *(us * iterations for us in (mean, longest, skewed))))
            rows.append(("mixed", n, 16, *(us * iterations for us in (mean, longest, longest))))
    write_rows(folder / "skew.csv", ("regime", "n", "pc", "t_mean_us", "t_max_us", "t_skew_us"), rows)


def write_saved(folder: Path, us: float, sizes: Iterable[int] = (1, 8, 16, 32, 64)) -> None:
    rows: list[tuple[object, ...]] = [("full", size, us) for size in sizes] + [
        ("piecewise", size, us / 2) for size in sizes
    ]
    write_rows(folder / "step.csv", ("branch", "num_tokens", "saved_us"), [*rows, ("none", 512, -1.0)])


def write_rows(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def change(path: Path, edit: Callable[[list[str]], list[str]]) -> None:
    """Edits a file's lines."""
    path.write_text("\n".join(edit(path.read_text().splitlines())) + "\n")
