"""Replaying recorded traces: readers, their quirks, and what is refused."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scenarios
from scenarios import InputError, Workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109"


def replay(path: Path, *overrides: str, **trace: Any) -> Workload:
    """The workload of a trace on one H100; `trace` are options."""
    sets = [f"workload.trace={json.dumps(trace)}"] if trace else []
    return scenarios.generate(scenarios.load("azure-conversation", trace=path, overrides=[*sets, *overrides]))


def written(folder: Path, text: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def mooncake(*rows: tuple[float, int, int, list[int]]) -> str:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows)


class TestAzure:
    def test_crlf_seven_digits_and_no_newline_at_the_end(self, tmp_path: Path) -> None:
        workload = replay(written(tmp_path, AZURE))
        assert workload.arrival_ns.tolist() == [0, 4_314_579_000]
        assert workload.prompt_tokens.tolist() == [374, 396]
        assert workload.output_tokens.tolist() == workload.max_tokens.tolist() == [44, 109]
        assert workload.prompt(0)[0][0] != workload.prompt(1)[0][0]

    def test_gzip_newline_at_the_end_bom_and_blank_lines(self, tmp_path: Path) -> None:
        for text in (AZURE.encode(), b"\xef\xbb\xbf" + AZURE.encode() + b"\r\n\r\n", AZURE.replace("\r", "").encode()):
            assert len(replay(written(tmp_path, gzip.compress(text)))) == 2

    def test_rows_are_sorted_by_arrival_and_ties_keep_their_order(self, tmp_path: Path) -> None:
        head, first, second = AZURE.split("\r\n")
        tie = second.replace("396", "397")
        workload = replay(written(tmp_path, "\r\n".join((head, second, tie, first))))
        assert workload.prompt_tokens.tolist() == [374, 396, 397]
        assert workload.arrival_ns[0] == 0

    def test_zone_of_utc_is_understood(self, tmp_path: Path) -> None:
        workload = replay(written(tmp_path, AZURE.replace("5900,", "5900+00:00,").replace("1690,", "1690+00:00,")))
        assert workload.arrival_ns.tolist() == [0, 4_314_579_000]

    def test_unit_is_not_asked_for(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="leave it out"):
            replay(written(tmp_path, AZURE), time_unit="ms")

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (",109", "", "line 3: found 2 values, but the header has 3"),
            (",396,109", ",396,", "line 3: GeneratedTokens: found '', but a number"),
            (",396,", ",-396,", "line 3: ContextTokens: found '-396'"),
            (",396,", ",39.6,", "line 3: ContextTokens: found '39.6'"),
            (",396,", ",nan,", "line 3: ContextTokens: found 'nan'"),
            (",396,", ",1e300,", "line 3: ContextTokens: found '1e300'"),
            (",396,", ",many,", "line 3: ContextTokens: found 'many'"),
            ("2023-11-16 18:15:50.9951690", "2023-11-16 18", "line 3: TIMESTAMP: found '2023-11-16 18'"),
            ("2023-11-16 18:15:50.9951690", "2023-13-16 18:15:50.9951690", "line 3: TIMESTAMP"),
            ("2023-11-16 18:15:50.9951690", "2023-11-16 18:15:50.995+02:00", "line 3: TIMESTAMP"),
        ],
    )
    def test_malformed_rows_are_named(self, tmp_path: Path, old: str, new: str, message: str) -> None:
        assert old in AZURE
        with pytest.raises(InputError) as caught:
            replay(written(tmp_path, AZURE.replace(old, new)))
        assert message in str(caught.value)
        assert str(tmp_path) in str(caught.value)


class TestAnyFile:
    @pytest.mark.parametrize("text", ["", "\n", "   \n\n"])
    def test_empty_traces_are_refused(self, tmp_path: Path, text: str) -> None:
        for content in (text.encode(), gzip.compress(text.encode())):
            with pytest.raises(InputError, match="empty"):
                replay(written(tmp_path, content))

    def test_header_alone_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="not one request"):
            replay(written(tmp_path, AZURE.split("\r\n", 1)[0]))

    def test_truncated_and_broken_gzip_are_refused(self, tmp_path: Path) -> None:
        packed = gzip.compress(AZURE.encode() * 50)
        with pytest.raises(InputError, match="truncated"):
            replay(written(tmp_path, packed[:-20]))
        with pytest.raises(InputError, match="gzip"):
            replay(written(tmp_path, packed[:4] + b"garbage" + packed[4:]))

    def test_binary_and_blank_first_line_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="UTF-8"):
            replay(written(tmp_path, b"\xff\xfe\x00"))
        with pytest.raises(InputError, match="line 1: is blank"):
            replay(written(tmp_path, "\r\n" + AZURE))

    def test_rows_without_output_are_dropped_counted_and_named(self, tmp_path: Path) -> None:
        text = (
            AZURE
            + "\r\n2023-11-16 18:15:51.0000000,100,0\r\n2023-11-16 18:15:52.0000000,0,7\r\n2023-11-16 18:15:53.0000000,5,0"
        )
        workload = replay(written(tmp_path, text))
        assert len(workload) == 2
        assert "2 of 5 requests" in workload.source
        assert "2 without output tokens (lines 4, 6)" in workload.source
        assert "1 without input tokens (line 5)" in workload.source
        with pytest.raises(InputError, match="not one of its 1 rows"):
            replay(written(tmp_path, AZURE.split("\r\n")[0] + "\r\n2023-11-16 18:15:51.0000000,100,0"))

    def test_rows_that_can_never_fit_are_left_to_the_run(self, tmp_path: Path) -> None:
        workload = replay(written(tmp_path, AZURE.replace("396", "9999999")))
        assert workload.prompt_tokens.tolist() == [374, 9_999_999]

    def test_limit_takes_the_first_by_time(self, tmp_path: Path) -> None:
        assert replay(written(tmp_path, AZURE), limit=1).prompt_tokens.tolist() == [374]
        assert len(replay(written(tmp_path, AZURE), limit=99)) == 2

    def test_speedup_shrinks_gaps(self, tmp_path: Path) -> None:
        assert replay(written(tmp_path, AZURE), speedup=2).arrival_ns.tolist() == [0, 2_157_289_500]

    @pytest.mark.parametrize("options", [{"speedup": 0}, {"speedup": -1}, {"limit": 0}, {"length_scale": 0}, {"length_scale": "fill"},
                                         {"time_unit": "minutes"}, {"format": "parquet"}, {"block_tokens": 0}])  # fmt: skip
    def test_impossible_options_are_refused(self, tmp_path: Path, options: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=next(iter(options))):
            replay(written(tmp_path, AZURE), **options)

    def test_declared_tokens_may_be_fixed(self, tmp_path: Path) -> None:
        assert replay(written(tmp_path, AZURE), "workload.max_tokens=500").max_tokens.tolist() == [500, 500]


class TestLengthScale:
    def test_a_stated_factor(self, tmp_path: Path) -> None:
        workload = replay(written(tmp_path, AZURE), length_scale=0.01)
        assert workload.prompt_tokens.tolist() == [3, 3]
        assert workload.output_tokens.tolist() == [1, 1]
        assert "lengths x 0.01" in workload.source

    def test_fit_shrinks_by_one_factor_until_the_longest_fits(self, tmp_path: Path) -> None:
        workload = replay(written(tmp_path, AZURE), "engine.max_model_len=101", length_scale="fit")
        factor = 101 / 505
        assert workload.prompt_tokens.tolist() == [int(374 * factor), int(396 * factor)]
        assert (workload.prompt_tokens + workload.output_tokens).max() in (100, 101)

    def test_fit_minds_kv_memory(self, tmp_path: Path) -> None:
        scenario = scenarios.load(
            "azure-conversation",
            trace=written(tmp_path, AZURE),
            overrides=["workload.trace.length_scale=fit", "engine.num_gpu_blocks=5"],
        )
        workload, config = scenarios.generate(scenario), scenario.engine_config()
        for prompt, output in zip(workload.prompt_tokens, workload.max_tokens, strict=True):
            assert config.why_it_can_never_run(int(prompt), int(output)) is None
        assert (workload.prompt_tokens + workload.output_tokens).max() >= 63

    def test_fit_never_stretches(self, tmp_path: Path) -> None:
        assert replay(written(tmp_path, AZURE), length_scale="fit").prompt_tokens.tolist() == [374, 396]

    def test_fit_minds_what_clients_declare(self, tmp_path: Path) -> None:
        sets = ("engine.max_model_len=200", "workload.max_tokens=150")
        assert replay(written(tmp_path, AZURE), *sets, length_scale="fit").prompt_tokens.max() == 50
        with pytest.raises(InputError, match="max_tokens"):
            replay(written(tmp_path, AZURE), "engine.max_model_len=100", "workload.max_tokens=150", length_scale="fit")


class TestMooncake:
    def test_times_are_milliseconds_unless_said(self, tmp_path: Path) -> None:
        text = mooncake((100, 5, 1, [1]), (103.5, 6, 2, [2]))
        assert replay(written(tmp_path, text)).arrival_ns.tolist() == [0, 3_500_000]
        assert replay(written(tmp_path, text), time_unit="s").arrival_ns.tolist() == [0, 3_500_000_000]

    def test_last_block_is_partial(self, tmp_path: Path) -> None:
        text = mooncake((0, 1300, 1, [7, 8, 9]), (1, 1024, 1, [7, 8]), (2, 600, 1, [7, 4]))
        workload = replay(written(tmp_path, text))
        assert workload.prompt(0) == (("h:7", 512), ("h:8", 512), ("h:9", 276))
        assert workload.prompt(1) == (("h:7", 512), ("h:8", 512))
        assert workload.prompt(2) == (("h:7", 512), ("h:4", 88))

    def test_full_blocks_of_16_leave_a_tail_of_its_own(self, tmp_path: Path) -> None:
        text = mooncake((0, 40, 1, [1, 2]), (1, 33, 1, [1, 2]), (2, 15, 1, []))
        workload = replay(written(tmp_path, text))
        assert workload.prompt(0) == (("h:1", 16), ("h:2", 16), ("p0", 8))
        assert workload.prompt(1) == (("h:1", 16), ("h:2", 16), ("p1", 1))
        assert workload.prompt(2) == (("p2", 15),)

    def test_block_size_may_be_given(self, tmp_path: Path) -> None:
        text = mooncake((0, 100, 1, [1]))
        assert replay(written(tmp_path, text), block_tokens=100).prompt(0) == (("h:1", 100),)
        with pytest.raises(InputError, match=r"line 1: hash_ids: found 1 for 100 tokens.*10 tokens"):
            replay(written(tmp_path, text), block_tokens=10)

    def test_hashes_that_no_block_size_explains_are_refused(self, tmp_path: Path) -> None:
        text = mooncake((0, 1024, 1, [1, 2]), (1, 1024, 1, [1, 2, 3]), (2, 1024, 1, [1, 2]))
        with pytest.raises(InputError, match=r"line 2: hash_ids: found 3 for 1024 tokens"):
            replay(written(tmp_path, text))

    def test_scaled_prompts_still_share_their_beginnings(self, tmp_path: Path) -> None:
        text = mooncake((0, 1300, 9, [7, 8, 9]), (1, 1100, 9, [7, 8, 5]))
        workload = replay(written(tmp_path, text), length_scale=0.1)
        assert workload.prompt(0) == (("h:7", 51), ("h:8", 51), ("h:9", 28))
        assert workload.prompt(1) == (("h:7", 51), ("h:8", 51), ("h:5", 8))
        assert workload.prompt_tokens.tolist() == [130, 110]

    def test_scaled_away_prompts_keep_a_token(self, tmp_path: Path) -> None:
        workload = replay(
            written(tmp_path, mooncake((0, 20, 9, [1]), (1, 5000, 9, list(range(10))))), length_scale=0.01
        )
        assert workload.prompt(0) == (("p0", 1),)
        for i in range(2):
            assert sum(tokens for _, tokens in workload.prompt(i)) == workload.prompt_tokens[i]

    def test_without_hashes_prompts_are_unique(self, tmp_path: Path) -> None:
        workload = replay(written(tmp_path, '{"timestamp": 0, "input_length": 5, "output_length": 1}\n'))
        assert workload.segment_offset is None

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ('{"timestamp": 1, "input_len', "line 2: not valid JSON"),
            ("[1, 2]", "line 2: found '[1, 2]', but a JSON object"),
            ("}, {", "line 2: not valid JSON"),
            ('{"timestamp": 1, "input_length": 5}', "line 2: output_length: found nothing"),
            ('{"timestamp": NaN, "input_length": 5, "output_length": 1}', "line 2: timestamp: found nan"),
            ('{"timestamp": "1", "input_length": 5, "output_length": 1}', "line 2: timestamp: found '1'"),
            ('{"timestamp": 1, "input_length": -5, "output_length": 1}', "line 2: input_length: found -5"),
            ('{"timestamp": 1, "input_length": true, "output_length": 1}', "line 2: input_length: found True"),
            ('{"timestamp": 1, "input_length": 5, "output_length": 1.5}', "line 2: output_length: found 1.5"),
            (
                '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": ["a"]}',
                "line 2: hash_ids: found ['a']",
            ),
            ('{"timestamp": 1, "input_length": 5, "output_length": 1}', "line 2: hash_ids: found nothing"),
        ],
    )
    def test_malformed_rows_are_named(self, tmp_path: Path, row: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            replay(written(tmp_path, mooncake((0, 5, 1, [1])) + "\n" + row))
        assert message in str(caught.value)


class TestPlainCsv:
    TEXT = "arrival,prompt_tokens,output_tokens\n0.5,10,2\n1.25,20,4\n"

    def test_time_unit_is_mandatory(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="time_unit, one of ns, us, ms, s"):
            replay(written(tmp_path, self.TEXT))
        assert replay(written(tmp_path, self.TEXT), time_unit="s").arrival_ns.tolist() == [0, 750_000_000]
        assert replay(written(tmp_path, self.TEXT), time_unit="us").arrival_ns.tolist() == [0, 750]

    def test_seconds_since_1970_keep_their_digits(self, tmp_path: Path) -> None:
        text = "arrival,prompt_tokens,output_tokens\n1787267980.25,10,2\n1787267980.75,20,4\n"
        assert replay(written(tmp_path, text), time_unit="s").arrival_ns.tolist() == [0, 500_000_000]
        whole = "arrival,prompt_tokens,output_tokens\n1787267980000000001,10,2\n1787267980000000004,20,4\n"
        assert replay(written(tmp_path, whole), time_unit="ns").arrival_ns.tolist() == [0, 3]

    def test_a_wrong_unit_shows_in_the_span(self, tmp_path: Path) -> None:
        text = "arrival,prompt_tokens,output_tokens\n0,10,2\n7000000000,20,4\n"
        with pytest.raises(InputError, match="is the time unit right"):
            replay(written(tmp_path, text), time_unit="s")
        assert replay(written(tmp_path, text), time_unit="us").arrival_ns.tolist() == [0, 7_000_000_000_000]

    def test_columns_may_be_named(self, tmp_path: Path) -> None:
        text = "when,size,who,answer\n3,10,a,2\n1,20,b,4\n"
        columns = {"arrival": "when", "prompt_tokens": "size", "output_tokens": "answer", "tenant": "who"}
        workload = replay(written(tmp_path, text), time_unit="s", columns=columns)
        assert workload.prompt_tokens.tolist() == [20, 10]
        assert [workload.tenants[k] for k in workload.tenant] == ["b", "a"]
        with pytest.raises(InputError, match=r"columns.prompt_tokens: unknown column 'sise': did you mean 'size'"):
            replay(written(tmp_path, text), time_unit="s", columns=columns | {"prompt_tokens": "sise"})
        with pytest.raises(InputError, match="which column is arrival"):
            replay(written(tmp_path, text), time_unit="s")

    def test_counts_may_be_written_as_floats(self, tmp_path: Path) -> None:
        text = self.TEXT.replace(",10,", ",10.0,")
        assert replay(written(tmp_path, text), time_unit="s").prompt_tokens.tolist() == [10, 20]

    def test_failed_requests_of_burstgpt_are_named(self, tmp_path: Path) -> None:
        text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,A,472,18,490,x\n9,A,10,0,10,x\n"
        workload = replay(written(tmp_path, text), time_unit="s")
        assert workload.prompt_tokens.tolist() == [472]
        assert "1 without output tokens (line 3)" in workload.source


class TestPublicTraces:
    def test_azure_conversation(self, data: Path) -> None:
        path = data / "traces/azure-2023/AzureLLMInferenceTrace_conv.csv.gz"
        scenario = scenarios.load("azure-conversation", trace=path)
        start = time.process_time()
        workload = scenarios.generate(scenario)
        assert time.process_time() - start < 1.0  # 0.08 s on a quiet core
        assert len(workload) == 19_366
        assert workload.prompt_tokens.mean() == pytest.approx(1154.7, abs=0.1)
        assert np.percentile(workload.prompt_tokens, 99) == 4142
        assert workload.output_tokens.mean() == pytest.approx(211.1, abs=0.1)
        assert len(workload) / workload.arrival_ns[-1] * 1e9 == pytest.approx(5.5, abs=0.1)

    def test_generated_shape_is_that_of_the_trace(self) -> None:
        workload = scenarios.generate(scenarios.load("azure-conversation"))
        assert workload.prompt_tokens.mean() == pytest.approx(1155, rel=0.02)
        assert np.percentile(workload.prompt_tokens, 99) == pytest.approx(4142, rel=0.05)
        assert workload.output_tokens.mean() == pytest.approx(211, rel=0.03)

    def test_azure_code_has_long_silences(self, data: Path) -> None:
        workload = replay(data / "traces/azure-2023/AzureLLMInferenceTrace_code.csv.gz")
        assert len(workload) == 8_819
        assert np.diff(workload.arrival_ns).max() / 1e9 == pytest.approx(217, abs=1)

    def test_first_200_scaled_to_the_tiny_window(self, data: Path) -> None:
        scenario = scenarios.load("demo", trace=data / "traces/azure-2023/AzureLLMInferenceTrace_conv.csv.gz")
        workload, config = scenarios.generate(scenario), scenario.engine_config()
        assert len(workload) == 200
        assert (workload.prompt_tokens + workload.output_tokens).max() <= config.max_model_len
        assert (workload.prompt_tokens + workload.output_tokens).max() >= config.max_model_len - 2
        for prompt, declared in zip(workload.prompt_tokens.tolist(), workload.max_tokens.tolist(), strict=True):
            assert config.why_it_can_never_run(prompt, declared) is None

    def test_mooncake_conversation(self, data: Path) -> None:
        workload = replay(data / "traces/mooncake/conversation_trace.jsonl.gz")
        assert len(workload) == 12_031
        assert workload.segment_offset is not None
        assert workload.segment_tokens is not None
        sums = np.add.reduceat(workload.segment_tokens, workload.segment_offset[:-1])
        assert (sums == workload.prompt_tokens).all()
        assert (np.diff(workload.segment_offset) == -(-workload.prompt_tokens // 512)).all()
        # An endless cache would find 37.4 % of all input tokens, no hit beyond its prompt.
        seen: set[Any] = set()
        hits = 0
        for i in range(len(workload)):
            for key, tokens in workload.prompt(i):
                if key not in seen:
                    break
                hits += tokens
            seen.update(key for key, _ in workload.prompt(i))
        assert hits / workload.prompt_tokens.sum() == pytest.approx(0.374, abs=0.001)
        assert (workload.output_tokens == 1).sum() == 72

    def test_workload_of_the_rtx_4090_run_has_full_blocks_of_16(self, data: Path) -> None:
        workload = replay(data / "measured/rtx4090-llama-3.1-8b/workload.jsonl")
        assert len(workload) == 300
        prompt = workload.prompt(0)
        assert {tokens for _, tokens in prompt[:-1]} == {16}
        assert prompt[-1] == ("p0", workload.prompt_tokens[0] % 16)

    def test_multitenant_trace_names_its_clients(self, data: Path) -> None:
        workload = replay(data / "traces/multitenant/vtc_real_trace.csv.gz", time_unit="s")
        assert (len(workload), len(workload.tenants)) == (1_500, 27)

    def test_burstgpt_head(self, data: Path) -> None:
        workload = replay(data / "traces/burstgpt/BurstGPT_1.head3.csv", time_unit="s")
        assert workload.arrival_ns.tolist() == [0, 40 * 10**9, 113 * 10**9]


def test_a_trace_that_was_read_is_the_same_again_until_its_file_changes(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE)
    first = replay(path)
    first.prompt_tokens[:] = 1  # what somebody does with it stays with them
    assert replay(path).prompt_tokens.tolist() == [374, 396]
    assert replay(path, limit=1).prompt_tokens.tolist() == [374]
    assert replay(path, speedup=2).arrival_ns.tolist() == [0, 2_157_289_500]
    written(tmp_path, AZURE.replace("374", "3740"))
    assert replay(path).prompt_tokens.tolist() == [3740, 396]
