"""vLLM's launch flags, of 0.8 to 0.33; facts from its public argument parser."""

from __future__ import annotations

from scenarios.launch.flags import (
    Table,
    boolean,
    changes,
    choice,
    dtype,
    harmless,
    integer,
    kv_dtype,
    mapping,
    modelled,
    number,
    quantization,
    window,
)

_GRAPHS = "which steps run as CUDA graphs or compiled: steps are priced as the engine's default runs them"
_KERNELS = "which kernels compute: other ones than the default may take longer or shorter than priced"
_LORA = "adapters: their memory, and their extra work in each step"
_OFFLOAD = (
    "weights in the host's memory, or how KV gets there: transfers would take other time, and more requests would fit"
)
_EXPERTS = "experts spread over devices: their traffic and imbalance replace tensor parallel's all-reduce"
_STAGES = (
    "layers or sequences spread over devices: memory of each, bubbles and transfers; only tensor parallel is modelled"
)
_REMOTE = "KV that moves between engines: transfers, and where prompts are computed"
_IMAGES = "images, audio or video: encoder time and memory"
_HYBRID = "state of hybrid models; they are not modelled"
_SLOTS = "how many prompts may be in part computed at a time; here any number may"
_HOST = "host time of each step or token, outside the priced step"

VLLM = Table(
    "vLLM",
    [
        modelled("model", "model"),
        modelled("model-tag", "model"),
        modelled("tensor-parallel-size -tp", "tensor_parallel_size", integer),
        modelled("data-parallel-size -dp", "replicas", integer),
        modelled("max-model-len", "max_model_len", window),
        modelled("max-num-seqs", "max_num_seqs", integer),
        modelled("max-num-batched-tokens", "max_num_batched_tokens", integer),
        modelled("block-size", "block_size", integer),
        modelled("num-gpu-blocks-override", "num_gpu_blocks", integer),
        modelled("gpu-memory-utilization", "gpu_memory_utilization", number),
        modelled("kv-cache-memory-bytes", "kv_bytes", integer),
        modelled("kv-cache-memory", "kv_bytes", integer),
        modelled("enable-prefix-caching", "enable_prefix_caching", boolean, "switch"),
        modelled("enable-chunked-prefill", "enable_chunked_prefill", boolean, "switch"),
        modelled("long-prefill-token-threshold", "long_prefill_token_threshold", integer),
        modelled("scheduling-policy", "policy", choice(fcfs="fcfs", priority="priority")),
        modelled("scheduler-reserve-full-isl", "scheduler_reserve_full_isl", boolean, "switch"),
        modelled("watermark", "watermark", number),
        modelled("kv-offloading-size", "kv_offloading_size", number),
        modelled("async-scheduling", "async_scheduling", boolean, "switch"),
        modelled("dtype", "dtype", dtype),
        modelled("quantization -q", "quantization", quantization),
        modelled("kv-cache-dtype", "kv_cache_dtype", kv_dtype),
        modelled("speculative-config -sc", "speculation", mapping, "json"),
        modelled("device", "platform"),
        modelled("rope-scaling", "positions", mapping, "json"),
        modelled("hf-overrides", "positions", mapping, "json"),
        modelled("config", "config"),
        # From here on: not modelled, and what each would change.
        *changes(_STAGES, "pipeline-parallel-size|-pp decode-context-parallel-size|-dcp prefill-context-parallel-size|-pcp",
                 unless=("1",)),
        *changes(_EXPERTS, "enable-expert-parallel|-ep enable-eplb enable-elastic-ep", "switch"),
        *changes(_EXPERTS, "all2all-backend num-redundant-experts expert-placement-strategy eplb-window-size "
                 "eplb-step-interval"),
        *changes(_EXPERTS, "eplb-config", "json"),
        *changes("micro-batches that overlap computing with traffic", "enable-dbo", "switch"),
        *changes("no compilation and no CUDA graphs: every kernel of every step is launched by the host, so small batches "
                 "decode slower than priced", "enforce-eager", "switch"),
        *changes(_GRAPHS, "compilation-config|-cc", "json"),
        *changes(_GRAPHS, "optimization-level|-O max-seq-len-to-capture max-cudagraph-capture-size performance-mode"),
        *changes(_GRAPHS, "cudagraph-capture-sizes cuda-graph-sizes", "list"),
        *changes(_KERNELS, "attention-backend moe-backend model-impl", unless=("auto", "vllm")),
        *changes(_KERNELS, "attention-config|-ac kernel-config", "json"),
        *changes(_KERNELS, "disable-custom-all-reduce enable-flashinfer-autotune", "switch"),
        *changes("attention over a shared prefix computed once for a batch", "disable-cascade-attn", "switch"),
        *changes(_LORA, "enable-lora fully-sharded-loras enable-lora-bias enable-prompt-adapter", "switch"),
        *changes(_LORA, "lora-modules prompt-adapters", "list"),
        *changes(_LORA, "max-loras max-lora-rank max-cpu-loras lora-dtype lora-extra-vocab-size max-prompt-adapters"),
        *changes(_LORA, "default-mm-loras", "json"),
        *changes(_OFFLOAD, "cpu-offload-gb", unless=("0", "0.0")),
        *changes(_OFFLOAD, "kv-offloading-backend offload-backend offload-group-size offload-num-in-group "
                 "offload-prefetch-step"),
        *changes(_REMOTE, "kv-transfer-config ec-transfer-config", "json"),
        *changes(_IMAGES, "limit-mm-per-prompt mm-processor-kwargs media-io-kwargs", "json"),
        *changes(_IMAGES, "mm-processor-cache-gb mm-encoder-tp-mode mm-encoder-attn-backend video-pruning-rate "
                 "mm-processor-cache-type mm-shm-cache-max-object-size-mb"),
        *changes(_IMAGES, "enable-mm-embeds disable-chunked-mm-input disable-mm-preprocessor-cache "
                 "enable-multimodal-encoder-data-parallel", "switch"),
        *changes(_HYBRID, "mamba-cache-dtype mamba-ssm-cache-dtype mamba-block-size mamba-cache-mode"),
        *changes(_SLOTS, "max-num-partial-prefills max-long-partial-prefills", unless=("1",)),
        *changes("another scheduler than vLLM's own", "scheduler-cls"),
        *changes("tokens that are held back and sent several at a time: clients see them later, in bursts",
                 "stream-interval", unless=("1",)),
        *changes("drafts of the older flags, which no longer exist: write --speculative-config", "speculative-model "
                 "num-speculative-tokens ngram-prompt-lookup-max ngram-prompt-lookup-min speculative-draft-tensor-parallel-size"),
        *changes("several steps per decision, in versions before 0.10", "num-scheduler-steps", unless=("1",)),
        *changes("KV scales computed in the first steps", "calculate-kv-scales", "switch"),
        *changes("KV layers shared in prefill", "kv-sharing-fast-prefill", "switch"),
        *changes("work for each token that the client did not ask for here: log-probabilities, hidden states, embeddings",
                 "enable-prompt-embeds enable-return-routed-experts", "switch"),
        *changes(_HOST, "logits-processors", "list"),
        *changes(_HOST, "structured-outputs-config additional-config reasoning-config", "json"),
        *changes(_HOST, "guided-decoding-backend api-server-count logits-processor-pattern", unless=("1", "auto")),
        *changes("host time of tracing or profiling each request", "otlp-traces-endpoint profiler-config"),
        *changes(_HOST, "collect-detailed-traces", "list"),
        *changes("models that do not answer with tokens: pooling, classification, scoring", "task runner convert",
                 unless=("auto", "generate", "none")),
        *changes("windows of attention", "disable-sliding-window disable-hybrid-kv-cache-manager", "switch"),
        *changes("the precision of attention", "override-attention-dtype"),
        # Harmless: where it listens, what it is called, how it loads, what it logs, how answers are written.
        *harmless("value", """
            host port uds uvicorn-log-level api-key root-path response-role chat-template chat-template-content-format
            ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs ssl-ciphers h11-max-incomplete-event-size h11-max-header-count
            tool-call-parser tool-parser-plugin reasoning-parser reasoning-parser-plugin max-log-len log-config-file
            tool-server tokenizer tokenizer-mode tokenizer-revision revision code-revision hf-config-path hf-token config-format
            download-dir load-format safetensors-load-strategy pt-load-map-location generation-config seed max-logprobs
            logprobs-mode allowed-local-media-path prefix-caching-hash-algo swap-space max-parallel-loading-workers
            distributed-executor-backend distributed-timeout-seconds nnodes node-rank master-addr master-port
            data-parallel-rank data-parallel-start-rank data-parallel-size-local data-parallel-address data-parallel-rpc-port
            data-parallel-backend worker-cls worker-extension-cls show-hidden-metrics-for-version num-lookahead-slots
            kv-cache-metrics-sample preemption-mode tokenizer-pool-size tokenizer-pool-type io-processor-plugin
            shutdown-timeout default-chat-template-kwargs renderer-num-workers override-pooler-config pooler-config
            spec-target-max-model-len
        """),
        *harmless("switch", """
            trust-remote-code disable-log-requests enable-log-requests disable-log-stats disable-uvicorn-access-log
            enable-auto-tool-choice allow-credentials enable-request-id-headers enable-prompt-tokens-details
            enable-server-load-tracking enable-force-include-usage enable-tokenizer-info-endpoint return-tokens-as-token-ids
            disable-frontend-multiprocessing disable-fastapi-docs enable-ssl-refresh enable-log-outputs enable-log-deltas
            log-error-stack headless skip-tokenizer-init use-tqdm-on-load enable-sleep-mode ray-workers-use-nsight
            aggregate-engine-logging use-v2-block-manager skip-mm-profiling interleave-mm-strings
            data-parallel-hybrid-lb data-parallel-external-lb disable-nccl-for-dp-synchronization allow-deprecated-quantization
            trust-request-chat-template exclude-tools-when-tool-choice-none kv-cache-metrics cudagraph-metrics
            enable-mfu-metrics enable-logging-iteration-details engine-use-ray worker-use-ray language-model-only
            enable-layerwise-nvtx-tracing enable-offline-docs eplb-log-balancedness
        """),
        *harmless("list", """
            served-model-name allowed-origins allowed-methods allowed-headers middleware ignore-patterns allowed-media-domains
        """),
        *harmless("json", """
            model-loader-extra-config override-generation-config kv-events-config weight-transfer-config
        """),
    ],
)  # fmt: skip
