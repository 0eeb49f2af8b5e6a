from __future__ import annotations

from pathlib import Path

import pytest

import cli
import scenarios
from serving.batching import BATCHINGS
from serving.policies import ORDERS
from serving.routing import ROUTERS

apptest = pytest.importorskip("streamlit.testing.v1", reason="streamlit (extra `app`) is not installed")


@pytest.fixture
def page():
    """The dashboard with the demo scenario of fifty requests."""
    found = apptest.AppTest.from_file(str(Path(cli.__file__).with_name("app.py")), default_timeout=30)
    found.run()
    found.select_slider(key="requests").set_value(50).run()
    assert not found.exception
    return found


def shown(page) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def test_the_page_shows_kv_capacity_first_and_names_what_binds(page):
    assert list(shown(page))[:2] == ["KV capacity, tokens", "conversations that fit"]
    engine = scenarios.load("demo").engine_config()
    assert shown(page)["KV capacity, tokens"] == f"{engine.usable_blocks * engine.block_size:,}"
    assert "busy" in page.info[0].value


def test_more_load_makes_first_tokens_later_and_the_queue_is_named(page):
    before = page.info[0].value
    page.slider(key="rate").set_value(30.0)
    page.select_slider(key="seqs").set_value(2).run()
    assert not page.exception
    assert page.info[0].value != before
    assert "max_num_seqs (2)" in page.info[0].value


def test_turning_the_prefix_cache_off_removes_the_hits(page):
    page.toggle(key="cache").set_value(False).run()
    assert not page.exception
    rows = [row for table in page.table for row in table.value.to_numpy().tolist()]
    assert ["prefix cache hits", "0.0 %"] in rows


@pytest.mark.parametrize(("box", "registry"), [("batching", BATCHINGS), ("queue order", ORDERS), ("router", ROUTERS)])
def test_every_registered_strategy_can_be_chosen(page, box, registry):
    names = list(registry)
    for name in names:
        page.selectbox(key=box).set_value(name).run()
        assert not page.exception
        assert not page.error
    assert len(page.selectbox(key=box).options) == len(names)


def test_another_model_and_device_change_the_capacity(page):
    page.selectbox(key="model").set_value("Llama-3.1-8B")
    page.selectbox(key="hardware").set_value("H100").run()
    assert not page.exception
    engine = scenarios.load("demo", overrides=["model=Llama-3.1-8B", "hardware=H100", "engine.num_gpu_blocks=null"])
    config = engine.engine_config()
    (label,) = (label for label in shown(page) if label.startswith("KV capacity, tokens"))
    assert shown(page)[label] == f"{config.usable_blocks * config.block_size:,}"
    capacity = engine.engine.kv_capacity(engine.model, engine.hardware)
    assert f"{capacity.low:,}" in label, "nothing states the capacity, so its interval stands beside it"


def test_a_model_that_does_not_fit_is_an_error_in_words(page):
    page.selectbox(key="model").set_value("Llama-3.1-70B")
    page.selectbox(key="hardware").set_value("L40S").run()
    assert not page.exception
    assert "Llama-3.1-70B" in page.error[0].value
    assert not page.metric


def test_a_model_chosen_first_is_shown_on_hardware_that_holds_it(page):
    page.selectbox(key="model").set_value("Llama-3.1-70B").run()
    assert not page.exception
    assert not page.error
    assert page.metric


def test_the_page_begins_with_the_load_of_the_demo(page):
    assert page.slider(key="rate").value == scenarios.load("demo").workload.arrivals.rate
