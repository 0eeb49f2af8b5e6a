"""How often prompts find their beginning in the prefix cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PrefixStats:
    """Prefix-cache look-ups in tokens: each request once at first admission; re-admissions are counted apart."""

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def count(self, tokens: int, hit_tokens: int, resumed: bool) -> None:
        if resumed:
            self.preempted_requests += 1
            self.preempted_queries += tokens
            self.preempted_hits += hit_tokens
        else:
            self.requests += 1
            self.queries += tokens
            self.hits += hit_tokens
