"""`servetwin from-vllm` and `from-sglang`: a file that runs, a document, messages, and refusals without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scenarios.launch.conftest import SGLANG_LOG, VLLM_LOG

VLLM = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 256 --enforce-eager --port 8000"


@pytest.fixture(autouse=True)
def _logs(servetwin):
    """Two logs in the folder in which commands run."""
    Path("vllm.log").write_text(VLLM_LOG.replace("enforce_eager=False", "enforce_eager=True"))
    Path("sglang.log").write_text(SGLANG_LOG)


@pytest.mark.parametrize(
    "arguments",
    [
        ("from-vllm", VLLM, "--log", "vllm.log", "--hardware", "rtx 4090"),
        ("from-vllm", "vllm serve Qwen/Qwen3-32B -tp 2 --quantization fp8", "--hardware", "H100", "--version", "0.10.2"),
        ("from-vllm", 'vllm serve Qwen/Qwen3-8B -sc \'{"method": "ngram", "num_speculative_tokens": 3}\'', "--hardware", "L40S"),
        ("from-sglang", "python -m sglang.launch_server --model-path Qwen/Qwen3-8B", "--log", "sglang.log", "--hardware", "H100"),
        ("from-sglang", "sglang serve --model-path Qwen/Qwen3-8B --enable-mixed-chunk --page-size 16", "--hardware", "H200"),
    ],
)  # fmt: skip
def test_what_is_written_runs(servetwin, arguments):
    code, out, err = servetwin(*arguments, "--out", "made/it.yaml")
    assert (code, out) == (0, "")
    assert "wrote made/it.yaml" in err
    assert "placeholder" in err
    code, out, _ = servetwin("run", "made/it.yaml", "--num-prompts", "5", "--json")
    assert (code, json.loads(out)["completed"]) == (0, 5)


def test_the_scenario_goes_to_stdout_and_what_to_know_to_stderr(servetwin):
    code, out, err = servetwin("from-vllm", VLLM, "--log", "vllm.log", "--hardware", "RTX-4090")
    assert code == 0
    assert "num_gpu_blocks: 2588" in out
    assert out.startswith("# vLLM 0.19.0")
    assert err.splitlines() == [line for line in err.splitlines() if "--enforce-eager: not modelled" in line]


def test_json_is_one_document(servetwin):
    _, out, _ = servetwin(
        "from-vllm", VLLM + " --max-num-seq 64", "--log", "vllm.log", "--hardware", "RTX-4090", "--json"
    )
    found = json.loads(out)
    assert found["scenario"]["engine"]["num_gpu_blocks"] == 2588
    assert {
        "field": "engine.num_gpu_blocks",
        "value": 2588,
        "from": "log",
        "text": "GPU KV cache size: 41,408 tokens",
    } in found["taken"]
    assert found["not_modelled"][0]["flag"] == "--enforce-eager"
    assert found["contradictions"][0]["field"] == "engine.max_num_seqs"
    assert found["placeholder"] == ["workload"]


def test_a_script_is_read_as_a_command(servetwin):
    Path("serve.sh").write_text("#!/bin/bash\nexport MODEL=Qwen/Qwen3-8B\nvllm serve $MODEL \\\n  --max-num-seqs 7\n")
    code, out, _ = servetwin("from-vllm", "serve.sh", "--hardware", "H100")
    assert code == 0
    assert "model: Qwen3-8B\n" in out
    assert "max_num_seqs: 7" in out


def test_a_scenario_that_is_there_is_never_overwritten(servetwin):
    Path("mine.yaml").write_text("mine")
    code, _, err = servetwin("from-vllm", VLLM, "--hardware", "H100", "--out", "mine.yaml")
    assert code == 2
    assert "exists already" in err
    assert Path("mine.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["from-vllm", "vllm serve 'M"], "quote"),
        (["from-vllm", ""], "empty"),
        (["from-vllm", "vllm serve"], "no model"),
        (["from-vllm", VLLM], "--hardware H100"),
        (["from-vllm", VLLM, "--hardware", "H1000"], "H100"),
        (["from-vllm", VLLM, "--log", "nowhere.log"], "nowhere.log"),
        (["from-vllm", VLLM, "--log", "."], "folder"),
        (["from-vllm", VLLM, "--log", "sglang.log"], "other engine"),
        (["from-vllm", VLLM, "--hardware", "H100", "--version", "new"], "--version new"),
        (["from-vllm", VLLM, "--hardware", "H100", "--model-config", "nowhere.json"], "nowhere.json"),
        (["from-sglang", VLLM, "--hardware", "H100"], "from-vllm"),
        (["from-sglang"], "COMMAND"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_message(servetwin, arguments, named):
    code, out, err = servetwin(*arguments)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err
