"""The schedulers that must all decide the same."""

from __future__ import annotations

from studies.conformance import Subject, default_subjects
from tests.oracle.scheduler import OracleScheduler

SUBJECTS: dict[str, Subject] = {**default_subjects(), "oracle": Subject(OracleScheduler, OracleScheduler.supports)}
