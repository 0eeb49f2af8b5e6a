"""Scenarios from what people have: the command that launched an engine, and the log of its start.

from_vllm("vllm serve Qwen/Qwen3-8B --max-num-seqs 64", log=Path("startup.log"), options=Options(hardware="H100"))
"""

from scenarios.launch.assembly import Options
from scenarios.launch.launch import Contradiction, Launch, NotModelled, Taken
from scenarios.launch.sglang import from_sglang
from scenarios.launch.vllm import from_vllm

__all__ = ["Contradiction", "Launch", "NotModelled", "Options", "Taken", "from_sglang", "from_vllm"]
