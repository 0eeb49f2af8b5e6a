"""SGLang's launch flags, of 0.4 to 0.5; facts from its public documentation of server arguments."""

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
    opposite,
    quantization,
    window,
)

_GRAPHS = "which steps run as CUDA graphs or compiled: steps are priced as the engine's default runs them"
_KERNELS = "which kernels compute: other ones than the default may take longer or shorter than priced"
_LORA = "adapters: their memory, and their extra work in each step"
_OFFLOAD = "weights or KV in the host's memory: transfers would take time, and more requests would fit"
_EXPERTS = "experts spread over devices: their traffic and imbalance replace tensor parallel's all-reduce"
_STAGES = (
    "layers or sequences spread over devices: memory of each, bubbles and transfers; only tensor parallel is modelled"
)
_DISAGG = "prefill and decode on different engines: transfers of KV, and where prompts are computed"
_OVERLAP = "micro-batches that overlap computing with traffic"
_HYBRID = "state of hybrid models; they are not modelled"
_DRAFTS = "drafts that are verified several at a time: fewer steps a token, larger steps"
_DELAY = "prompts that wait for each other, so that fewer and larger prefill steps run"
_HOST = "host time of each step or token, outside the priced step"
_PRIORITY = "priorities that evict what runs"

SGLANG = Table(
    "SGLang",
    [
        modelled("model-path model", "model"),
        modelled("tp-size tensor-parallel-size tp", "tensor_parallel_size", integer),
        modelled("dp-size data-parallel-size dp", "replicas", integer),
        modelled("context-length", "max_model_len", window),
        modelled("mem-fraction-static", "mem_fraction_static", number),
        modelled("max-running-requests", "max_num_seqs", integer),
        modelled("max-total-tokens", "kv_tokens", integer),
        modelled("chunked-prefill-size", "chunked_prefill_size", integer),
        modelled("max-prefill-tokens", "max_prefill_tokens", integer),
        modelled("page-size", "block_size", integer),
        modelled("schedule-conservativeness", "schedule_conservativeness", number),
        modelled("schedule-policy", "policy", choice(fcfs="fcfs", priority="priority", lpm="longest_prefix")),
        modelled("disable-radix-cache", "enable_prefix_caching", opposite, "switch"),
        modelled("disable-overlap-schedule", "async_scheduling", opposite, "switch"),
        modelled("enable-mixed-chunk", "mixed", boolean, "switch"),
        modelled("dtype", "dtype", dtype),
        modelled("quantization", "quantization", quantization),
        modelled("kv-cache-dtype", "kv_cache_dtype", kv_dtype),
        modelled("device", "platform"),
        modelled("json-model-override-args", "positions", mapping, "json"),
        modelled("config", "config"),
        # From here on: not modelled, and what each would change.
        *changes(_STAGES, "pp-size|pipeline-parallel-size|pp attention-context-parallel-size|attn-cp-size "
                 "moe-dense-tp-size|moe-dense-tensor-parallel-size moe-data-parallel-size|moe-dp-size", unless=("1",)),
        *changes(_STAGES, "pp-max-micro-batch-size|max-micro-batch-size pp-async-batch-depth", unless=("0",)),
        *changes(_STAGES, "enable-dynamic-chunking", "switch"),
        *changes("attention of each device for requests of its own: KV of the engine is split over them, batches are smaller",
                 "enable-dp-attention enable-dp-lm-head", "switch"),
        *changes(_EXPERTS, "ep-size|expert-parallel-size|ep", unless=("1",)),
        *changes(_EXPERTS, "enable-ep-moe enable-deepep-moe enable-eplb enable-expert-distribution-metrics", "switch"),
        *changes(_EXPERTS, "moe-a2a-backend deepep-mode deepep-config ep-num-redundant-experts ep-dispatch-algorithm "
                 "init-expert-location eplb-algorithm eplb-rebalance-num-iterations eplb-rebalance-layers-per-chunk "
                 "eplb-min-rebalancing-utilization-threshold elastic-ep-backend", unless=("none", "0", "trivial", "auto")),
        *changes(_OVERLAP, "enable-two-batch-overlap enable-single-batch-overlap", "switch"),
        *changes(_OVERLAP, "tbo-token-distribution-threshold"),
        *changes("CUDA graphs off: every kernel of a decode step is launched by the host, so small batches decode slower than "
                 "priced", "disable-cuda-graph", "switch"),
        *changes(_GRAPHS, "cuda-graph-max-bs cuda-graph-max-bs-decode torch-compile-max-bs piecewise-cuda-graph-max-tokens "
                 "piecewise-cuda-graph-compiler"),
        *changes(_GRAPHS, "cuda-graph-bs piecewise-cuda-graph-tokens", "list"),
        *changes(_GRAPHS, "disable-cuda-graph-padding enable-torch-compile disable-piecewise-cuda-graph "
                 "enable-piecewise-cuda-graph enforce-piecewise-cuda-graph", "switch"),
        *changes(_KERNELS, "attention-backend prefill-attention-backend decode-attention-backend sampling-backend "
                 "moe-runner-backend fp8-gemm-backend fp8-gemm-runner-backend fp4-gemm-backend bf16-gemm-backend model-impl "
                 "triton-attention-num-kv-splits torchao-config mm-attention-backend", unless=("auto", "sglang", "")),
        *changes(_KERNELS, "disable-custom-all-reduce enable-mscclpp enable-nccl-nvls enable-symm-mem enable-torch-symm-mem "
                 "enable-flashinfer-allreduce-fusion enable-flashinfer-moe enable-flashinfer-cutlass-moe "
                 "enable-flashinfer-trtllm-moe enable-fp32-lm-head enable-fused-qk-norm-rope triton-attention-reduce-in-fp32 "
                 "enable-deterministic-inference disable-flashinfer-autotune disable-shared-experts-fusion "
                 "disable-chunked-prefix-cache flashinfer-mla-disable-ragged enable-quant-communications", "switch"),
        *changes(_LORA, "enable-lora enable-lora-overlap-loading", "switch"),
        *changes(_LORA, "lora-paths lora-target-modules", "list"),
        *changes(_LORA, "max-lora-rank max-loras-per-batch max-loaded-loras lora-backend lora-eviction-policy "
                 "max-lora-chunk-size lora-drain-wait-threshold"),
        *changes(_OFFLOAD, "enable-hierarchical-cache enable-lmcache disaggregation-decode-enable-offload-kvcache", "switch"),
        *changes(_OFFLOAD, "cpu-offload-gb offload-group-size", unless=("0", "-1")),
        *changes(_OFFLOAD, "hicache-ratio hicache-size hicache-write-policy hicache-io-backend hicache-mem-layout "
                 "hicache-storage-backend hicache-storage-prefetch-policy hicache-storage-backend-extra-config "
                 "offload-num-in-group offload-prefetch-step offload-mode kt-weight-path kt-method kt-cpuinfer "
                 "kt-threadpool-count kt-num-gpu-experts"),
        *changes(_DISAGG, "disaggregation-mode disaggregation-transfer-backend disaggregation-bootstrap-port "
                 "disaggregation-ib-device num-reserved-decode-tokens", unless=("null",)),
        *changes(_DISAGG, "enable-pdmux", "switch"),
        *changes(_DISAGG, "pdmux-config-path sm-group-num"),
        *changes(_HYBRID, "max-mamba-cache-size mamba-ssm-dtype mamba-full-memory-ratio mamba-scheduler-strategy "
                 "mamba-track-interval swa-full-tokens-ratio"),
        *changes(_HYBRID, "disable-hybrid-swa-memory", "switch"),
        *changes(_DRAFTS, "speculative-algorithm|speculative-algo speculative-draft-model-path|speculative-draft-model "
                 "speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens speculative-token-map "
                 "speculative-accept-threshold-single speculative-accept-threshold-acc speculative-attention-mode "
                 "speculative-draft-model-quantization speculative-draft-model-revision speculative-draft-load-format "
                 "speculative-draft-attention-backend speculative-ngram-max-trie-depth speculative-ngram-capacity "
                 "speculative-ngram-min-bfs-breadth speculative-ngram-max-bfs-breadth speculative-ngram-match-type "
                 "speculative-moe-runner-backend"),
        *changes(_DRAFTS, "enable-multi-layer-eagle", "switch"),
        *changes("how many prompts one prefill step takes", "prefill-max-requests"),
        *changes(_DELAY, "enable-prefill-delayer", "switch"),
        *changes(_DELAY, "prefill-delayer-max-delay-passes prefill-delayer-token-usage-low-watermark "
                 "prefill-delayer-queue-min-ratio prefill-delayer-max-delay-ms"),
        *changes("requests that are refused when so many wait", "max-queued-requests"),
        *changes(_PRIORITY, "enable-priority-scheduling schedule-low-priority-values-first", "switch"),
        *changes(_PRIORITY, "priority-scheduling-preemption-threshold"),
        *changes("which cached prefixes go first", "radix-eviction-policy", unless=("lru",)),
        *changes("tokens that are held back and sent several at a time: clients see them later, in bursts",
                 "stream-interval", unless=("1",)),
        *changes("several decode steps per decision", "num-continuous-decode-steps", unless=("1",)),
        *changes("how often new requests are looked for", "scheduler-recv-interval", unless=("1",)),
        *changes(_HOST, "grammar-backend tokenizer-worker-num detokenizer-worker-num", unless=("none", "1")),
        *changes(_HOST, "enable-custom-logit-processor enable-trace enable-return-hidden-states "
                 "enable-return-routed-experts enable-dynamic-batch-tokenizer enable-tokenizer-batch-encode "
                 "enable-nan-detection", "switch"),
        *changes("images, audio or video: encoder time and memory", "enable-multimodal encoder-only", "switch"),
        *changes("models that do not answer with tokens", "is-embedding", "switch"),
        *changes("which replica takes a request", "load-balance-method", unless=("round_robin", "auto")),
        # Harmless: where it listens, what it is called, how it loads, what it logs, how answers are written.
        *harmless("value", """
            host port fastapi-root-path warmups nccl-port tokenizer-path tokenizer-mode tokenizer-backend load-format
            model-loader-extra-config revision download-dir base-gpu-id gpu-id-step random-seed quantization-param-path
            constrained-json-whitespace-pattern watchdog-timeout soft-watchdog-timeout dist-timeout model-checksum log-level
            log-level-http log-requests-level log-requests-format crash-dump-folder decode-log-interval kv-events-config
            otlp-traces-endpoint export-metrics-to-file-dir api-key admin-api-key served-model-name weight-version
            chat-template hf-chat-template-name completion-template file-storage-path reasoning-parser tool-call-parser
            tool-server sampling-defaults dist-init-addr nccl-init-addr nnodes node-rank preferred-sampling-params
            modelopt-checkpoint-restore-path modelopt-checkpoint-save-path modelopt-export-path mooncake-ib-device
            gc-warning-threshold-secs mm-max-concurrent-calls mm-per-request-timeout ssl-keyfile ssl-certfile ssl-ca-certs
            ssl-keyfile-password debug-tensor-dump-output-folder model-config-parser weight-loader-prefetch-num-threads
            tokenizer-metrics-custom-labels-header
        """),
        *harmless("switch", """
            trust-remote-code skip-tokenizer-init skip-server-warmup grpc-mode sleep-on-idle log-requests show-time-cost
            enable-metrics enable-mfu-metrics enable-metrics-for-all-schedulers collect-tokens-histogram
            enable-request-time-stats-logging export-metrics-to-file enable-cache-report delete-ckpt-after-loading
            enable-memory-saver enable-weights-cpu-backup allow-auto-truncate enable-p2p-check enable-ssl-refresh
            constrained-json-disable-any-whitespace disable-outlines-disk-cache enable-cudagraph-gc
            enable-profile-cuda-graph disable-fast-image-processor weight-loader-disable-mmap incremental-streaming-output
            stream-output enable-layerwise-nvtx-marker checkpoint-engine-wait-weights-before-ready language-only
            abort-on-priority-when-disabled quantize-and-serve disable-tokenizer-batch-decode
            weight-loader-prefetch-checkpoints
        """),
        *harmless("list", """
            log-requests-target uvicorn-access-log-exclude-prefixes bucket-time-to-first-token bucket-inter-token-latency
            bucket-e2e-request-latency prompt-tokens-buckets generation-tokens-buckets custom-weight-loader numa-node
            tokenizer-metrics-allowed-custom-labels
        """),
    ],
)  # fmt: skip
