"""Knobs of who goes where, who is let in, and what is given up under load."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.knobs.controls import Choice, Knob, Number, Scale, given, strategies, written
from scenarios import Scenario
from scenarios.routers import Cascade
from serving.routing import ROUTERS

_PREDICTORS = {
    "null": "nobody",
    "oracle": "an oracle: the true length",
    "{kind: noisy_oracle, cv: 0.5}": "a noisy oracle, off by half",
    "class_mean": "the mean of the class",
    "declared": "what the client declares",
}
_LADDERS = {
    "null": "nothing",
    "{ladder: [{cap_output: 200, on_at: 16}]}": "answers end at 200 tokens while 16 wait",
    "{ladder: [{cap_output: 200, on_at: 16}, {reject: true, on_at: 64}]}": "cap at 200 while 16 wait, refuse while 64 do",
    "{ladder: [{reject: true, signal: kv_use, on_at: 0.9}]}": "refuse while KV memory is 90 % full",
}
_STALE = {
    "{ladder: [{drop_stale_turns: 2, on_at: 8}]}": "keep 2 earlier turns while 8 wait",
    "{ladder: [{cap_output: 200, on_at: 8}, {drop_stale_turns: 2, on_at: 32}]}": "cap at 200 while 8 wait, keep 2 turns while 32 do",
}
_CLIENTS = {
    "null": "wait for ever",
    "{timeout: 30s}": "leave after 30 s",
    "{first_token_timeout: 5s}": "leave when no token came for 5 s",
    "{first_token_timeout: 5s, retries: 2}": "leave when no token came for 5 s, and try twice more",
}
_BUCKETS = {
    "null": "all come in",
    **{
        f"{{requests: {n}, burst: 5s}}": f"{n} requests a second, unused ones kept for 5 s"
        for n in (1, 2, 5, 10, 20, 50)
    },
    "{tokens: 5000, burst: 10s}": "5,000 tokens a second, kept for 10 s",
    "{tokens: 20000, burst: 10s}": "20,000 tokens a second, kept for 10 s",
}


def knobs(scenario: Scenario) -> Iterator[Knob]:
    """Of the front: the router, admission, clients, the ladder; and who predicts."""
    yield from _router(scenario)
    orders = {view.engine.policy for view in scenario.of_pools()}
    if scenario.workload.predictor is not None or "shortest_first" in orders:
        yield Knob(
            "workload.predictor", "Policies", "Who predicts answers",
            "Shortest answer first is as good as its predictor: an oracle is the most that it could gain.",
            *given(_short(scenario), _PREDICTORS),
        )  # fmt: skip
    limits = scenario.admission
    yield Knob(
        "admission.max_queue_requests", "Policies", "Longest queue a replica",
        "Beyond it requests are refused at once instead of late.",
        Number(0, 1_000_000, 10, whole=True, optional=True), None if limits is None else limits.max_queue_requests,
    )  # fmt: skip
    yield Knob(
        "admission.queue_timeout", "Policies", "Longest wait",
        "Who was not begun by then is sent away: what would miss anyway costs nothing.",
        Number(0.1, 3600, 1, optional=True, unit="s", duration=True), None if limits is None else limits.queue_timeout,
    )  # fmt: skip
    yield Knob(
        "admission.token_bucket", "Policies", "Allowance",
        "A token bucket for all together: what may come in the long run. Load beyond it is refused, whether or not there was room.",
        *given(None if limits is None else limits.token_bucket, _BUCKETS),
    )  # fmt: skip
    talks = any(hasattr(part.prompts, "turns") for part in (scenario.workload.mix or {"": scenario.workload}).values())
    yield Knob(
        "degradation", "Policies", "Given up under load",
        "The mildest first: shorter answers keep everybody served; refusing keeps those served who are in.",
        *given(scenario.degradation, _LADDERS | (_STALE if talks else {})),
    )  # fmt: skip
    yield Knob(
        "client_behaviour", "Policies", "Impatient clients",
        "Who leaves frees the engine, but what was computed is lost; who tries again is load that no rate shows.",
        *given(scenario.client_behaviour, _CLIENTS),
    )  # fmt: skip


def _short(scenario: Scenario) -> object:
    """The predictor as its short form where it has one."""
    found = scenario.workload.predictor
    return found.kind if found is not None and found.kind in _PREDICTORS else found


def _router(scenario: Scenario) -> Iterator[Knob]:
    router = scenario.router
    if not isinstance(router, Cascade):
        names = strategies(ROUTERS, {}).options
        text = router if isinstance(router, str) else written(router)
        yield Knob(
            "router", "Policies", "Router",
            "Which replica takes a request. By prefix keeps caches warm, by load keeps queues short.", Choice(names), text,
        )  # fmt: skip
        return
    if router.thresholds and len(router.thresholds) == 1:
        yield Knob(
            "router.thresholds", "Policies", "Hardest for the small model",
            "Requests that look harder go to the large model at once: 0 sends all there, 1 none.",
            Scale((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)), router.thresholds[0], "[%s]",
        )  # fmt: skip
        yield Knob(
            "router.estimate_error", "Policies", "Error of that guess",
            "Standard deviation of the difficulty as the router sees it: wrong guesses cost money or quality.",
            Scale((0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)), router.estimate_error,
        )  # fmt: skip
    judge = router.judge
    if judge is not None:
        yield Knob(
            "router.judge.recall", "Policies", "Wrong answers that the judge finds",
            "What it misses reaches the client; what it finds is asked again of the next model.",
            Scale((0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)), judge.recall,
        )  # fmt: skip
        yield Knob(
            "router.judge.false_positive_rate", "Policies", "Right answers that it rejects",
            "Each is asked again of the next model for nothing.",
            Scale((0.0, 0.02, 0.05, 0.1, 0.2, 0.4)), judge.false_positive_rate,
        )  # fmt: skip
        yield Knob(
            "router.judge.latency", "Policies", "Time to judge an answer",
            "Every client waits for that: the answer is read before it is shown.",
            Number(0, 1e6, 50, unit="ms", duration=True), judge.latency,
        )  # fmt: skip
        yield Knob(
            "router.judge.usd", "Policies", "USD a judged answer",
            "It is paid for every request of the small model, so it decides whether the cascade saves anything.",
            Scale((0.0, 0.00001, 0.0001, 0.001, 0.01)), judge.usd,
        )  # fmt: skip
    within = router.within if isinstance(router.within, str) else written(router.within)
    yield Knob(
        "router.within", "Policies", "Router within a pool",
        "Which replica of the pool takes a request. By prefix keeps caches warm, by load keeps queues short.",
        strategies(ROUTERS, {}), within,
    )  # fmt: skip
