"""What is not modelled: one list for every report, and what a validation cannot see beyond it."""

NOT_MODELLED = (
    "detokenisation and the network between client and engine; tokenisation, but for a front_end of a stated cost",
    "pipeline and expert parallelism; prefill and decode on separate machines",
    "host time that asynchronous scheduling hides: it changes when a step is decided, not what a step costs",
    "copies of KV to the host that overlap with computing; tiers of the prefix cache beyond host memory",
    "LoRA adapters, multimodal inputs, sampling parameters, structured (grammar-guided) output, pooling models",
    "MLA, sliding-window and hybrid attention (a model that needs them is refused)",
    "clients that lose patience while a judge reads an answer (each try has its own limits); models that err on the same requests beyond their difficulty",
    "clock and power throttling, other load on the machine, failures",
)

BRIEFLY = "detokenisation, network, pipeline and expert parallelism, failures"
"""The first things to think of, where one line must do."""

BEYOND = (
    "residual noise of step times: simulations use the fitted mean",
    "work of the host between steps, where the clock is real time",
    "skew of contexts inside one batch beyond their sum",
)
"""What a comparison of executions with simulations must live with beside `NOT_MODELLED`."""
