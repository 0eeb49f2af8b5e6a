"""The laws that hold for every run, by number; each has a file of its own here, numbers without one belong to parts to come.

1.  Every submitted request ends exactly once: finished, rejected, timed out, aborted, or in flight at the horizon.
2.  KV blocks: free + owned + cached = total after every step; nothing is owned when idle.
3.  arrival <= first scheduled <= first token <= finish; no clock goes back.
4.  Work conserving, per policy: an idle replica never leaves waiting a request that an empty engine could hold.
5.  The same scenario and seed give byte-identical records, whatever the hash seed or the number of processes.
6.  No policy sees true output lengths.
7.  Leaps on or off, fast scheduler or plain one: identical records.
8.  Replaying a run's log reproduces its steps and token times exactly, for both clocks.
11. One request on an idle replica: TTFT and E2E are the sum of its step costs.
12. Costs never fall with tokens, contexts or sequences.
15. Changing a policy changes nothing that is drawn.
16. Decisions equal vLLM's recorded ones; most of its tests are in tests/conformance.
"""
