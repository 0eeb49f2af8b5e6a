"""Measured losses beside the speed: stored, found again for a scenario, and honest where nobody measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import scenarios
from cli import main
from scenarios.errors import InputError
from sim.profile import Profile
from sim.profiles import load_profile
from sim.quality import Loss, Quality
from studies.aspects import quality
from studies.comparison import compare
from studies.reports import report
from studies.run import simulate

INT8 = Loss(weights="int8", kv="unquantised", perplexity=10.2, mean_kl=0.003, p99_kl=0.02, top1_agreement=0.97)
INT4 = INT8.model_copy(update={"weights": "int4", "mean_kl": 0.3})
FOUND = Quality(
    model="qwen3-tiny", reference="model.gguf", reference_perplexity=10.0, text="text.txt", text_hash="0", tokens=500,
    window=512, losses=(INT8,),
)  # fmt: skip


def scenario(
    model: str, name: str = "s", hardware: str = "H100", cost: Any = None, **engine: Any
) -> scenarios.Scenario:
    document = {
        "name": name, "model": model, "hardware": hardware, "engine": {"max_num_seqs": 8, "max_model_len": 512} | engine,
        "workload": {"requests": 4, "arrivals": "all_at_once", "input": 20, "output": 4},
    }  # fmt: skip
    return scenarios.loads(json.dumps(document | ({"cost": cost} if cost else {})))


def cells(model: str, **options: Any) -> dict[str, str]:
    """The report's table of quality; empty if there is none."""
    from studies.reports import run_tables

    found = [table for table in run_tables.every(simulate(scenario(model, **options))) if table.title == "Quality"]
    return dict(found[0].rows) if found else {}


def test_a_report_shows_the_measured_loss_beside_the_speed() -> None:
    found = cells("smollm2", dtype="int8", kv_cache_dtype="int8")
    (shipped,) = (q for q in quality.shipped() if q.model == "SmolLM2-135M")
    loss = shipped.find("int8", "int8")
    assert loss is not None
    assert found["precision"] == "int8 weights, int8 KV"
    assert found["mean KL divergence"] == f"{loss.mean_kl:.3g} nats"
    assert found["perplexity, unquantised"] == f"{shipped.reference_perplexity:.3g}"


@pytest.mark.parametrize("engine", [{"dtype": "int4"}, {"dtype": "fp8"}, {"kv_cache_dtype": "fp8"}])
def test_a_model_that_nobody_measured_says_so(engine: dict[str, str]) -> None:
    assert cells("Qwen3-8B", **engine)["loss"] == "not measured"


def test_wide_precisions_lose_nothing_to_speak_of() -> None:
    assert cells("smollm2") == {}
    assert cells("smollm2", dtype="float16", kv_cache_dtype="bfloat16") == {}


def test_the_page_of_a_run_shows_the_loss(tmp_path: Path) -> None:
    report.save(simulate(scenario("smollm2", dtype="int4")), tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h3>Quality</h3>" in page
    assert "int4 weights" in page


def test_scenarios_are_compared_by_speed_and_quality() -> None:
    found = compare(
        [scenario("smollm2", "a", dtype="int8"), scenario("smollm2", "b"), scenario("Qwen3-8B", "c", dtype="int8")]
    )
    (row,) = (row for row in found.table().rows if row[0].startswith("mean KL"))
    assert float(row[1]) > 0
    assert row[2:] == ("–", "not measured")


def test_weights_of_fewer_bits_are_faster_where_they_are_read_and_compute_in_bfloat16() -> None:
    run = {d: simulate(scenario("Llama-3.1-8B", dtype=d)).summary for d in ("bfloat16", "int8", "int4")}
    assert run["int4"]["mean_tpot_ms"] < run["int8"]["mean_tpot_ms"] < run["bfloat16"]["mean_tpot_ms"]


# --- kept in a profile ---


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return load_profile("cpu-avx2-qwen3-tiny").save(tmp_path / "mine.json")


def test_a_profile_keeps_losses_and_a_scenario_that_uses_it_finds_them(profile: Path) -> None:
    before = load_profile(profile)
    quality.store(FOUND, before).save(profile)
    after = load_profile(profile)
    assert after.quality == FOUND
    assert after.model_copy(update={"quality": None}).hash() == before.hash()
    found = cells("qwen3-tiny", hardware="cpu", cost={"profile": str(profile)}, dtype="int8")
    assert found["perplexity"] == "10.2"
    assert cells("qwen3-tiny", hardware="cpu", dtype="int8")["loss"] == "not measured"


def test_a_profile_without_losses_is_written_as_before(profile: Path) -> None:
    assert "quality" not in json.loads(profile.read_text())


def test_a_later_measurement_joins_an_earlier_one_on_the_same_text(profile: Path) -> None:
    worse = INT8.model_copy(update={"mean_kl": 0.004})
    first = quality.store(FOUND, load_profile(profile))
    both = quality.store(FOUND.model_copy(update={"losses": (INT4, worse)}), first)
    assert both.quality is not None
    assert both.quality.losses == (INT4, worse)
    added = quality.store(FOUND.model_copy(update={"losses": (INT4,)}), first)
    assert added.quality is not None
    assert added.quality.losses == (INT8, INT4)
    other = quality.store(FOUND.model_copy(update={"text_hash": "1", "losses": (INT4,)}), first)
    assert other.quality is not None
    assert other.quality.losses == (INT4,)


def test_losses_of_another_model_do_not_belong_into_a_profile(profile: Path) -> None:
    with pytest.raises(InputError, match="is of qwen3-tiny, and quality is measured of other"):
        quality.store(FOUND.model_copy(update={"model": "other"}), load_profile(profile))


def test_a_profile_with_impossible_losses_is_refused(profile: Path) -> None:
    data = json.loads(quality.store(FOUND, load_profile(profile)).model_dump_json())
    data["quality"]["losses"][0]["top1_agreement"] = 1.5
    profile.write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"quality\.losses\[0\]\.top1_agreement: found 1\.5"):
        load_profile(profile)


def test_shipped_losses_are_whole() -> None:
    for found in quality.shipped():
        assert found.losses
        assert found.text == quality.TEXT
        assert Profile.model_fields["quality"].default is None


# --- the command ---


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of 211 tokens and a tokenizer of bytes."""
    tokenizers, safetensors, weights = (
        pytest.importorskip(n) for n in ("tokenizers", "safetensors.torch", "gpu_backend.weights")
    )
    from gpu_backend.model_files.hugging_face import to_hugging_face
    from scenarios.hf_config import read_config

    path = tmp_path_factory.mktemp("model")
    config = {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "_name_or_path": "qwen3-tiny",
        "max_position_embeddings": 512, "tie_word_embeddings": True,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    spec = read_config(path)
    state = to_hugging_face(spec, weights.random_weights(spec))
    del state["lm_head.weight"]
    safetensors.save_file({name: tensor.contiguous() for name, tensor in state.items()}, path / "model.safetensors")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(
        "Water always finds the lowest path, and where two threads meet they make a stronger one. " * 3
    )
    return tmp_path / "text.txt"


def command(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["quality", *map(str, arguments)])
    return int(caught.value.code or 0)


def test_the_command_prints_writes_and_stores_what_it_measured(
    model: Path, text: Path, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "quality.json"
    options = ("--weights", "int8,int4", "--kv", "int8", "--text", text, "--window", "100")
    assert command(model, *options, "--out", out, "--profile", profile) == 0
    printed = capsys.readouterr()
    assert "266 predicted tokens of text.txt" in printed.out
    written = quality.read(out.read_text(), str(out))
    assert [(loss.weights, loss.kv) for loss in written.losses] == [
        ("unquantised", "int8"), ("int8", "unquantised"), ("int8", "int8"), ("int4", "unquantised"), ("int4", "int8"),
    ]  # fmt: skip
    assert load_profile(profile).quality == written
    assert command(model, *options, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(written.model_dump_json())


def test_without_precisions_the_command_measures_perplexity_alone(
    model: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(model, "--weights", "none", "--kv", "none", "--text", text, "--json") == 0
    assert json.loads(capsys.readouterr().out)["losses"] == []


def test_bad_input_is_one_clear_error(
    model: Path, text: Path, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("Too short to say anything.")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    other = load_profile(profile).model_copy(update={"model": "Qwen3-8B"}).save(tmp_path / "other.json")
    for arguments, message in (
        ((model, "--weights", "int3", "--text", text), "weights: found 'int3', allowed: int8, int4, fp8"),
        ((model, "--weights", "int8,", "--text", text), "weights: found '', allowed"),
        ((model, "--kv", "int4", "--text", text), "kv: found 'int4', allowed: int8, fp8"),
        ((model, "--text", tmp_path / "none.txt"), "none.txt: there is no such file"),
        ((model, "--text", tmp_path / "empty.txt"), "text: found 0 tokens, at least 129"),
        ((model, "--text", tmp_path / "short.txt"), "text: found 26 tokens, at least 129"),
        ((model, "--text", tmp_path / "bytes.txt"), "bytes.txt: not text in UTF-8"),
        ((tmp_path / "cut.gguf", "--text", text), "cut.gguf: truncated: the file has 8 bytes"),
        ((tmp_path / "none.gguf", "--text", text), "none.gguf: there is no such file or folder"),
        (("Qwen3-8B", "--text", text), "no package carries its weights"),
        ((model, "--text", text, "--device", "tpu"), "--device: found tpu"),
        ((model, "--text", text, "--out", tmp_path), "a folder, but the figures are a file"),
        ((model, "--text", text, "--profile", tmp_path / "no.json"), "no.json: there is no such file"),
        ((model, "--text", text, "--profile", text), "text.txt: not JSON"),
        ((model, "--text", text, "--profile", other), "is of Qwen3-8B, and quality is measured of qwen3-tiny"),
    ):
        assert command(*arguments) == 2
        printed = capsys.readouterr()
        assert message in printed.err, arguments
        assert "Traceback" not in printed.err
        assert printed.out == ""
