"""One statement a setting from what a command and a log say: the log wins, contradictions are named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scenarios.launch.arguments import Arguments
from scenarios.launch.flags import Given
from scenarios.launch.launch import Contradiction, Taken
from scenarios.launch.launched_model import base_name
from scenarios.launch.startup_log import StartupLog


@dataclass(frozen=True)
class Options:
    """What the user says beside command and log."""

    hardware: str | None = None
    model_config: str | None = None
    version: str | None = None


_FIELDS = {
    "model": "model", "replicas": "replicas", "platform": "hardware", "quantization": "engine.dtype",
    "mem_fraction_static": "engine.gpu_memory_utilization", "chunked_prefill_size": "engine.max_num_batched_tokens",
    "mixed": "engine.batching", "positions": "model", "kv_tokens": "engine.num_gpu_blocks",
}  # fmt: skip
"""Where settings end that are no field of the engine section by their own name."""


@dataclass
class Assembly:
    """A scenario while it is put together: statements by setting, and what was made of them."""

    engine: str
    options: Options
    command: Arguments
    log: StartupLog | None
    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Given] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_modelled: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        logged = self.log.arguments if self.log else Arguments()
        self.not_modelled = logged.not_modelled | self.command.not_modelled
        for name in [name for name in self.not_modelled if f"--{name}" in logged.harmless]:
            flag, _ = self.not_modelled.pop(name)
            said, used = f"{flag!r} (command)", "the log's is used"
            self.contradictions.append(Contradiction(name, said, "the log says that it is off", used))
        self._settle(logged.given | (self.log.facts if self.log else {}))

    def _settle(self, logged: dict[str, Given]) -> None:
        """One statement a setting."""
        for setting in dict.fromkeys([*self.command.given, *logged]):
            said, resolved = self.command.given.get(setting), logged.get(setting)
            if said is None or resolved is None:
                self.settings[setting] = said or resolved  # type: ignore[assignment]
            elif _same(setting, said.value, resolved.value) or resolved.value in (None, "", "auto"):
                self.settings[setting] = said
            else:
                self.settings[setting] = resolved
                if said.value not in (None, "", "auto"):
                    self.contradict(_FIELDS.get(setting, f"engine.{setting}"), said, resolved, "the log's is used")

    def value(self, setting: str, default: Any = None) -> Any:
        given = self.settings.get(setting)
        return default if given is None or given.value is None else given.value

    def take(self, path: str, value: Any, given: Given | None = None, *, origin: str = "", text: str = "") -> None:
        """Puts a value into the scenario, and notes where it came from."""
        node = self.fields
        *above, last = path.split(".")
        for part in above:
            node = node.setdefault(part, {})
        node[last] = value
        shown = value if not isinstance(value, dict) else value.get("name", value)
        self.taken.append(Taken(path, shown, given.origin if given else origin, given.text if given else text))

    def take_setting(self, setting: str, path: str | None = None) -> None:
        """The same for a setting that is a field as it stands, if it was stated."""
        given = self.settings.get(setting)
        if given is not None and given.value not in (None, "auto"):
            self.take(path or f"engine.{setting}", given.value, given)

    def contradict(self, name: str, said: Given, against: Given, used: str) -> None:
        self.contradictions.append(
            Contradiction(name, f"{_stated(said)} ({said.origin})", f"{_stated(against)} ({against.origin})", used)
        )


def _stated(given: Given) -> str:
    """What was written, and what it comes to where that is not to be seen: 16k is 16000."""
    value = str(given.value)
    return repr(given.text) if value in given.text.replace(",", "") else f"{given.text!r}, {value}"


def _same(setting: str, a: Any, b: Any) -> bool:
    if setting == "model":
        return base_name(str(a)).lower() == base_name(str(b)).lower()
    return bool(a == b)
