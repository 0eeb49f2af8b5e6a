"""Policies side by side: scenarios, variants of one, or those of a study, simulated under the same seeds and held against one another.

found = studies.compare("azure-conversation", variants={"fp8": ["engine.kv_cache_dtype=fp8"]})
found.difference("fp8", "p99_ttft_ms")
"""

from studies.comparison.files import write
from studies.comparison.result import Comparison
from studies.comparison.runs import compare

__all__ = ["Comparison", "compare", "write"]
