"""From a piece of shell to the arguments of the engine in it: wrappers, environment, containers and pipes around it fall away."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from scenarios.errors import InputError


@dataclass(frozen=True)
class Launcher:
    """How an engine is started.

    Args:
        starts: what stands before its arguments, by base names (`vllm serve`).
        image: part of the name of its container images. example: a command, for messages.
        command: name of our own command for it.
        image_serves: whether what follows an image's name are arguments of the server.
    """

    engine: str
    starts: tuple[tuple[str, ...], ...]
    image: str
    example: str
    command: str
    image_serves: bool


VLLM = Launcher(
    "vLLM",
    (
        ("vllm", "serve"),
        ("-m", "vllm.entrypoints.openai.api_server"),
        ("-m", "vllm.entrypoints.api_server"),
        ("-m", "vllm.entrypoints.cli.main", "serve"),
        ("-m", "vllm", "serve"),
    ),
    "vllm", "vllm serve MODEL ...", "from-vllm", True,
)  # fmt: skip
SGLANG = Launcher(
    "SGLang",
    (("-m", "sglang.launch_server"), ("sglang.launch_server",), ("sglang", "serve"), ("launch_server.py",)),
    "sglang", "python -m sglang.launch_server --model-path MODEL ...", "from-sglang", False,
)  # fmt: skip
_BOTH = (VLLM, SGLANG)

LONGEST = 1_000_000
"""Characters of a command; a longer one is something else."""


@dataclass(frozen=True)
class Command:
    """What was found in the text.

    Args:
        argv: arguments of the server. env: variables set before it. image: name and tag of a container image, if any.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None

    @property
    def image_version(self) -> str | None:
        """Version in the image's tag (`v0.10.2`), None for `latest` and the like."""
        found = re.search(r":v?(\d+\.\d+(?:\.\d+)?)", self.image or "")
        return found[1] if found else None


def read_command(text: str, launcher: Launcher) -> Command:
    """The engine's arguments in a text as one types it into a shell.

    Raises:
        InputError: no such engine is started there, or the quotes do not match.
    """
    if len(text) > LONGEST:
        raise InputError(
            f"the command has {len(text):,} characters; at most {LONGEST:,} are read. Is it a log (--log)?"
        )
    if not text.strip():
        raise InputError(f"the command is empty; write it in quotes: servetwin {launcher.command} '{launcher.example}'")
    tokens = _tokens(text)
    found = _launched(tokens, launcher)
    if found is None:
        for other in _BOTH:
            if other is not launcher and _launched(tokens, other) is not None:
                raise InputError(
                    f"this starts {other.engine}, not {launcher.engine}: servetwin {other.command} reads it"
                )
        raise InputError(
            f"no {launcher.engine} server is started in {_short(text)!r}; expected something like '{launcher.example}' "
            "(variables, docker run and launchers may stand before it)"
        )
    return found


def _launched(tokens: Sequence[str], launcher: Launcher, env: Mapping[str, str] | None = None) -> Command | None:
    env = dict(env or {})
    bare = [PurePath(token).name if "/" in token else token for token in tokens]
    for at, token in enumerate(bare):
        for start in launcher.starts:
            if tuple(bare[at : at + len(start)]) == start:
                return Command(
                    _until_operator(tokens[at + len(start) :]), env | _env(tokens[:at]), _image(tokens[:at], launcher)
                )
        if token in ("bash", "sh", "zsh") and at + 2 < len(bare) and re.fullmatch(r"-\w*c", bare[at + 1]):
            inner = _launched(_tokens(tokens[at + 2]), launcher, env | _env(tokens[:at]))
            if inner is not None:
                return Command(inner.argv, inner.env, inner.image or _image(tokens[:at], launcher))
    image = _image(tokens, launcher)
    if image is not None and launcher.image_serves:
        rest = list(tokens[tokens.index(image) + 1 :])
        return Command(_until_operator(rest[1:] if rest[:1] == ["serve"] else rest), env | _env(tokens), image)
    if tokens and tokens[0].startswith("--") and launcher.image_serves == any(t.startswith("--model") for t in tokens):
        return Command(_until_operator(tokens), env)  # a container's arguments alone
    return None


_OPERATORS = frozenset(
    {";", "|", "||", "&", "&&", ">", ">>", "<", "<<", "<<<", ">&", "&>", "&>>", "|&", "\n", ";;", "2>"}
)


def _tokens(text: str) -> list[str]:
    """Words as a shell would split them, operators and line ends apart."""
    joined = re.sub(r"[\\^`][ \t]*\r?\n", " ", text)  # continued lines: of sh, cmd and PowerShell
    joined = re.sub(r"(?m)^[ \t]*#.*$", "", joined)
    joined = re.sub(r"\r?\n[ \t]*(?=-)", " ", joined)  # a line of flags continues the one above it
    joined = re.sub(r"(?<=\s)[12](?=>)", "", joined)  # the number of a stream, `2>&1`
    lexer = shlex.shlex(joined.replace("\r\n", "\n"), posix=True, punctuation_chars=";|&<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError as error:
        opened = "a quote is opened and never closed" if "quotation" in str(error) else "a backslash ends it"
        raise InputError(f"the command cannot be split into words: {opened}: {_short(text)!r}") from None


def _until_operator(tokens: Sequence[str]) -> tuple[str, ...]:
    argv: list[str] = []
    for token in tokens:
        if token in _OPERATORS or (token and set(token) <= set(";|&<>\n")):
            break
        argv.append(token)
    return tuple(argv)


_ASSIGNMENT = re.compile(r"(?:--env=)?([A-Za-z_]\w*)=(.*)", re.DOTALL)


def _env(tokens: Sequence[str]) -> dict[str, str]:
    found = (_ASSIGNMENT.fullmatch(token) for token in tokens)
    return {match[1]: match[2] for match in found if match}


_NO_VALUE = frozenset(
    {"--rm", "--init", "--privileged", "--detach", "--interactive", "--tty", "--read-only", "--no-healthcheck"}
)
"""Options of docker run that no word follows; so are bundles of single letters such as -itd."""


def _image(tokens: Sequence[str], launcher: Launcher) -> str | None:
    """The container image that is run, if it is one of the engine."""
    tokens = list(tokens)
    if "run" not in tokens or not any(PurePath(t).name in ("docker", "podman", "nerdctl") for t in tokens):
        return None
    at = tokens.index("run") + 1
    while at < len(tokens) and tokens[at].startswith("-"):
        option = tokens[at]
        alone = "=" in option or option in _NO_VALUE or re.fullmatch(r"-[itdP]+", option)
        at += 1 if alone else 2
    return tokens[at] if at < len(tokens) and launcher.image in tokens[at] else None


SECRET = re.compile(r"api.key|(?:hf|auth|access|bearer).token|password|secret", re.IGNORECASE)


def shown(argv: Sequence[str]) -> str:
    """The arguments as one line; what looks like a secret is left out."""
    words: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = name.startswith("--") and bool(SECRET.search(name))
        words.append("***" if hide else f"{name}=***" if secret and equals else word)
        hide = secret and not equals
    return " ".join(word if word == "***" else shlex.quote(word) for word in words)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "..."
