"""Which scenario a page is about: a named one or an upload, what is changed in it, and the trace it replays. It is all in the link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import scenarios
from dashboard import uploads
from scenarios import InputError, Override, Scenario, documents
from scenarios.errors import unknown

DEFAULT = "demo"
UPLOADED, QUESTIONED = "upload:", "question:"
BASE, QUESTION, TRACE = "scenario", "question", "trace"
"""Query parameters beside those that are paths of the scenario."""


class MissingUploadError(InputError):
    """A link names a file that nobody gave to this server. digest: of it. what: it is."""

    def __init__(self, digest: str, what: str) -> None:
        super().__init__(
            f"this link needs a {what} that is not here (SHA-256 {digest}…); upload it and the view is complete"
        )
        self.digest, self.what = digest, what


@dataclass(frozen=True)
class Settings:
    """A scenario as the difference to another.

    base: name of a shipped one, `upload:` and the digest of a file, or `question:` and a name of the question library. changes: YAML by path in it, as of `--set`. trace: digest
    of the uploaded trace that is replayed.
    """

    base: str = DEFAULT
    changes: Mapping[str, str] = field(default_factory=dict)
    trace: str | None = None

    def changed(self, path: str, text: str | None) -> Settings:
        """With another value at a path; None: what the base has."""
        changes = {p: t for p, t in self.changes.items() if p != path}
        if text is not None:
            changes[path] = text
        return replace(self, changes=changes)

    def overrides(self) -> list[Override]:
        """The changes: what encloses another comes first."""
        ordered = sorted(self.changes.items(), key=lambda item: (_depth(item[0]), item[0]))
        return [Override.parse(f"{path}={text}", f"{path}={text}") for path, text in ordered]

    def given(self) -> tuple[Override, ...]:
        """What the base changes in its text: of a question, for all of its points."""
        return _of_question(self.base.removeprefix(QUESTIONED))[1] if self.base.startswith(QUESTIONED) else ()

    def base_scenario(self) -> Scenario:
        """The scenario that is changed, as it is."""
        return Settings(self.base).scenario()

    def scenario(self, more: Sequence[Override] = ()) -> Scenario:
        """The scenario with its changes. more: what is changed on top of them.

        Raises:
            MissingUploadError: it rests on a file that is not here. InputError: one sentence on the first thing that is wrong.
        """
        text, source = self.text()
        trace = None if self.trace is None else _upload(self.trace, "trace").path
        try:
            return scenarios.loads(
                text,
                source=source,
                overrides=[*self.given(), *self.overrides(), *more],
                trace=trace,
                within=uploads.folder(),
            )
        except InputError as error:
            raise InputError(uploads.plain(str(error))) from None

    def text(self) -> tuple[str, str]:
        """The base's YAML, and what messages call it."""
        if self.base.startswith(UPLOADED):
            upload = _upload(self.base.removeprefix(UPLOADED), "scenario")
            return documents.read_text(upload.path), upload.name
        if self.base.startswith(QUESTIONED):
            name = self.base.removeprefix(QUESTIONED)
            return _of_question(name)[0], name
        return scenarios.template(self.base), self.base

    def named(self) -> str:
        """The base in words."""
        if self.base.startswith(UPLOADED):
            found = uploads.find(self.base.removeprefix(UPLOADED))
            return self.base if found is None else found.name
        return self.base.removeprefix(QUESTIONED)

    def to_query(self) -> dict[str, str]:
        """As query parameters: nothing but what differs from the default."""
        query = {} if self.base == DEFAULT else {BASE: self.base}
        if self.base.startswith(QUESTIONED):
            query = {QUESTION: self.base.removeprefix(QUESTIONED)}
        query |= {path: self.changes[path] for path in sorted(self.changes)}
        return query if self.trace is None else query | {TRACE: self.trace}


def is_setting(name: str) -> bool:
    """Whether a query parameter is about the scenario: `scenario`, `question`, `trace`, or a path within it."""
    return name in (BASE, QUESTION, TRACE) or _first(name) in Scenario.model_fields


def from_query(query: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings of a link, and a sentence on everything in it that cannot be had: that is left as the base has it.

    query: its parameters; those that are no settings are passed over.
    """
    told: list[str] = []
    base = query.get(BASE, DEFAULT)
    if QUESTION in query:
        if BASE in query:
            told.append(f"{BASE}={base}: left out, since the link names a question as well")
        base = QUESTIONED + query[QUESTION]
    found = Settings(base)
    try:
        found.base_scenario()
    except MissingUploadError as error:
        return Settings(base, {p: t for p, t in query.items() if _is_path(p)}, query.get(TRACE)), [str(error)]
    except InputError as error:
        told.append(f"{error}. Shown instead: {DEFAULT}.")
        found = Settings()
    if (digest := query.get(TRACE)) is not None:
        found = replace(found, trace=digest)
        if uploads.find(digest) is None:
            told.append(str(MissingUploadError(digest, "trace")))
            return replace(found, changes={p: t for p, t in query.items() if _is_path(p)}), told
    wanted = {path: text for path, text in query.items() if _is_path(path)}
    complete = replace(found, changes=wanted)
    if _problem(complete) is None:
        return complete, told
    # Not all of them together: as many as can be had, in the order of the link; what fits only after another gets a second chance.
    left = list(wanted)
    while left:
        taken = [path for path in left if _problem(found.changed(path, wanted[path])) is None]
        if not taken:
            break
        for path in taken:
            tried = found.changed(path, wanted[path])
            if _problem(tried) is None:
                found = tried
                left.remove(path)
    told.extend(f"Left as it was: {_problem(found.changed(path, wanted[path]))}" for path in left)
    return found, told


def _problem(settings: Settings) -> str | None:
    try:
        settings.scenario()
    except InputError as error:
        return str(error)
    return None


@cache
def _of_question(name: str) -> tuple[str, tuple[Override, ...]]:
    """The scenario that a study of the library varies, and what the study changes in it for all points."""
    import yaml

    from studies import questions

    if name not in questions.names():
        raise InputError(f"{QUESTION}={name}: {unknown('question', name, questions.names())}")
    study = questions.read(name)
    own = study.content().get("scenario")
    text = scenarios.template(study.base) if study.base is not None else yaml.safe_dump(own, sort_keys=False)
    return text, tuple(Override.parse(given, f"{name}: set: {given}") for given in study.set)


def _upload(digest: str, what: str) -> uploads.Upload:
    found = uploads.find(digest)
    if found is None:
        raise MissingUploadError(digest, what)
    return found


def _is_path(name: str) -> bool:
    return is_setting(name) and name not in (BASE, QUESTION, TRACE)


def _first(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _depth(path: str) -> int:
    return path.count(".") + path.count("[")


def as_text(value: Any) -> str:
    """A value as YAML on one line: `true`, `64`, `{process: poisson, rate: 2}`."""
    import yaml

    if isinstance(value, str):
        try:
            if "\n" not in value and documents.parse(value, "value") == value:
                return value
        except InputError:
            pass  # `[draft` is text in quotes only
    dumped: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, sort_keys=False, allow_unicode=True)
    return dumped.removesuffix("\n").removesuffix("\n...")
