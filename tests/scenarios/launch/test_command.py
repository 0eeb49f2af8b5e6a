"""A launch is found in what people paste: scripts, containers, environment, continued lines, pipes."""

from __future__ import annotations

import pytest

from scenarios import InputError
from scenarios.launch.command import SGLANG, VLLM, read_command, shown


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve M --tp 2",
        "/opt/venv/bin/vllm serve M --tp 2",
        "python3 -m vllm.entrypoints.openai.api_server M --tp 2",
        "CUDA_VISIBLE_DEVICES=0,1 nohup numactl -N 0 vllm serve M --tp 2 > log.txt 2>&1 &",
        "vllm serve M --tp 2 2>&1 | tee startup.log",
        "cd /models && source env.sh; vllm serve M \\\n  --tp 2\necho started",
        "vllm serve M \\  \n --tp 2",
        "vllm serve M\n    --tp 2\n",
        "# start it\nvllm serve M ^\r\n --tp 2",
        "bash -lc 'vllm serve M --tp 2'",
        "srun -N1 bash -c \"exec vllm serve M --tp 2\"",
        "docker run --gpus all --rm -it -v ~/.cache:/root -p 8000:8000 -e HF_TOKEN=x --name vllm vllm/vllm-openai:v0.10.2 M --tp 2",
        "podman run --device nvidia.com/gpu=all docker.io/vllm/vllm-openai serve M --tp 2",
        "docker run -d --ipc=host image:1 vllm serve M --tp 2",
        "uv run vllm serve M --tp 2; rm -rf x",
    ],
)  # fmt: skip
def test_wrappers_around_a_launch_fall_away(text):
    assert read_command(text, VLLM).argv == ("M", "--tp", "2")


def test_variables_before_the_launch_and_the_images_tag_are_kept():
    found = read_command("docker run -e VLLM_USE_V1=0 -e A=b vllm/vllm-openai:v0.10.2-cu128 --model M", VLLM)
    assert found.env == {"VLLM_USE_V1": "0", "A": "b"}
    assert found.image_version == "0.10.2"
    assert read_command("docker run vllm/vllm-openai:latest --model M", VLLM).image_version is None


@pytest.mark.parametrize(
    "text",
    [
        "python -m sglang.launch_server --model-path M",
        "python3 -m sglang.launch_server --model-path M",
        "sglang serve --model-path M",
        "docker run --gpus all lmsysorg/sglang:v0.5.3 python3 -m sglang.launch_server --model-path M",
    ],
)
def test_sglang_launches_are_found(text):
    assert read_command(text, SGLANG).argv == ("--model-path", "M")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("vllm serve 'M", "quote"),
        ('vllm serve "M --x \'{"a": 1}\'', "quote"),
        ("vllm bench serve --model M", "vllm serve MODEL"),
        ("ls -l", "no vLLM server"),
        ("python -m sglang.launch_server --model-path M", "from-sglang"),
        ("x" * 1_000_001, "characters"),
        (";;;|||", "no vLLM server"),
    ],
)
def test_what_is_no_launch_is_refused_with_an_example(text, named):
    with pytest.raises(InputError, match="(?s)" + named):
        read_command(text, VLLM)


def test_json_in_quotes_stays_one_word():
    argv = read_command(
        """vllm serve M --speculative-config '{"method": "ngram",\n "num_speculative_tokens": 3}'""", VLLM
    ).argv
    assert argv[2] == '{"method": "ngram",\n "num_speculative_tokens": 3}'


def test_secrets_are_not_shown():
    line = shown(("M", "--api-key", "sk-1", "--hf-token=hf_2", "--tokenizer", "T", "--port", "1"))
    assert "sk-1" not in line
    assert "hf_2" not in line
    assert "--tokenizer T --port 1" in line
