"""What a launch flag means here: it sets something that is modelled, it changes no timing, or it changes what is not modelled.

An engine's table is a list of `Flag`; the same table reads a command line and the arguments that the engine logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["value", "switch", "list", "json"]
"""`value`: one follows. `switch`: none, but for true or false. `list`: one or more. `json`: one, or `--flag.key value`."""


class ValueNotModelled(Exception):  # noqa: N818 - no mistake of the user's
    """A value that the engine takes and that is not modelled; the message says what it would change."""


@dataclass(frozen=True)
class Flag:
    """One flag of an engine.

    Args:
        names: without leading dashes, words joined by `-`; short forms with their dash (`-tp`).
        sets: the setting it gives, None where it sets nothing that is modelled.
        read: its text (`true` or `false` for a switch) to the setting's value. Raises ValueError: not a value of this flag;
            ValueNotModelled.
        effect: what it changes that is not modelled; None where it changes no timing.
        unless: texts with which it changes nothing.
    """

    names: tuple[str, ...]
    kind: Kind = "value"
    sets: str | None = None
    read: Callable[[str], Any] = str
    effect: str | None = None
    unless: frozenset[str] = frozenset()


class Table:
    """The flags of one engine by every name they have."""

    def __init__(self, engine: str, flags: Iterable[Flag]) -> None:
        self.engine = engine
        self.flags = tuple(flags)
        self._by_name: dict[str, Flag] = {}
        for flag in self.flags:
            for name in flag.names:
                if name in self._by_name:
                    raise ValueError(f"{engine}: {name} is in the table twice")
                self._by_name[name] = flag

    def get(self, name: str) -> Flag | None:
        """The flag called that, with dashes or underscores."""
        return self._by_name.get(name if name.startswith("-") else name.replace("_", "-"))

    @property
    def names(self) -> list[str]:
        return [name if name.startswith("-") else f"--{name}" for name in self._by_name]

    def counts(self) -> dict[str, int]:
        """How many flags are modelled, harmless, and not modelled."""
        modelled = sum(flag.sets is not None for flag in self.flags)
        effects = sum(flag.sets is None and flag.effect is not None for flag in self.flags)
        return {"modelled": modelled, "harmless": len(self.flags) - modelled - effects, "not modelled": effects}


def modelled(names: str, sets: str, read: Callable[[str], Any] = str, kind: Kind = "value") -> Flag:
    """A flag that gives a setting; `names` are separated by spaces."""
    return Flag(tuple(names.split()), kind, sets, read)


def harmless(kind: Kind, names: str) -> list[Flag]:
    """Flags that change no timing of a request, one a word."""
    return [Flag((name,), kind) for name in names.split()]


def changes(effect: str, names: str, kind: Kind = "value", unless: Sequence[str] = ()) -> list[Flag]:
    """Flags, one a word (`a|b`: two names of one), that change something which is not modelled."""
    return [Flag(tuple(name.split("|")), kind, effect=effect, unless=frozenset(unless)) for name in names.split()]


_INTEGER = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([kKmMgGtT]?)")
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_MOST = 2**53
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def integer(text: str) -> int:
    """A whole number; as vLLM reads it, 1k is 1,000 and 1K is 1,024."""
    found = _INTEGER.fullmatch(text.strip().replace(",", ""))
    if found is None or ("." in found[1] and (not found[2] or found[2] in _BINARY)):
        raise ValueError("a whole number is needed, such as 4096, 4k (4,000) or 4K (4,096)")
    factor = _BINARY.get(found[2]) or _DECIMAL[found[2]]
    value = round(float(found[1]) * factor) if "." in found[1] else int(found[1]) * factor
    if abs(value) > _MOST:
        raise ValueError("this is beyond what any engine counts")
    return value


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number is needed") from None


def boolean(text: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise ValueError("true or false is needed")
    return known[text.lower()]


def opposite(text: str) -> bool:
    return not boolean(text)


def window(text: str) -> int | None:
    """A length, or None where the engine is asked to choose it."""
    return None if text.lower() in ("auto", "-1", "none") else integer(text)


def mapping(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"this is not valid JSON (column {error.colno}: {error.msg}); in a shell it stands in single quotes"
        ) from None
    except RecursionError:
        raise ValueError("this is nested too deeply to be JSON that an engine reads") from None
    if not isinstance(found, dict):
        raise ValueError("a JSON object is needed, such as '{\"key\": 1}'")
    return found


_DTYPES = {
    "auto": "auto", "half": "float16", "float16": "float16", "fp16": "float16", "bfloat16": "bfloat16",
    "bf16": "bfloat16", "float": "float32", "float32": "float32", "fp32": "float32",
}  # fmt: skip


def dtype(text: str) -> str:
    """Of the weights as the command names it, to ours."""
    key = text.removeprefix("torch.").lower()
    if key not in _DTYPES:
        raise ValueError(f"allowed: {', '.join(_DTYPES)}")
    return _DTYPES[key]


def kv_dtype(text: str) -> str:
    key = text.removeprefix("torch.").lower()
    if key.startswith(("fp8", "float8")):
        return "fp8"
    if key.startswith("int8"):
        return "int8"
    if key in _DTYPES:
        return _DTYPES[key]
    raise ValueNotModelled("KV memory and attention in a precision that is not modelled; bfloat16, fp8 and int8 are")


_PRECISIONS = {
    "none": "", "fp8": "fp8", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "modelopt": "fp8", "modelopt_fp8": "fp8",
    "w8a8_fp8": "fp8", "mxfp8": "fp8", "fp8_per_tensor": "fp8", "fp8_per_block": "fp8", "w8a8_int8": "int8",
    "experts_int8": "int8", "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4", "marlin": "int4",
    "moe_wna16": "int4", "auto-round": "int4", "inc": "int4", "bitsandbytes": "int4", "modelopt_fp4": "int4",
    "modelopt_mixed": "", "petit_nvfp4": "int4", "mxfp4": "int4", "nvfp4": "int4", "w4afp8": "int4", "qoq": "int4",
}  # fmt: skip


def quantization(text: str) -> str:
    """A method of quantisation to the precision of the weights, empty for none."""
    key = text.strip().lower()
    if (_PRECISIONS.get(key)) or key == "none":
        return _PRECISIONS[key]
    raise ValueNotModelled(
        f"how many bits {text} leaves the weights is not said by its name; without a checkpoint name that says it "
        "(-FP8, -AWQ, -w8a8) they count as bfloat16, too large and too slow: set engine.dtype"
    )


def choice(**names: str) -> Callable[[str], str]:
    """Reads one of these names, to ours; another of the engine's is not modelled."""

    def read(text: str) -> str:
        key = text.lower().replace("-", "_")
        if key not in names:
            raise ValueNotModelled(f"only {' and '.join(names)} are modelled here; fcfs is taken")
        return names[key]

    return read


@dataclass(frozen=True)
class Given:
    """A setting that was stated.

    Args:
        text: as it was written, flag or log line. origin: `command`, `config file` or `log`.
    """

    value: Any
    text: str
    origin: str = field(default="command")
