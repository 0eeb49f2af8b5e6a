"""Residuals of a validation: predicted / measured - 1, beside what repeats differ by."""

from __future__ import annotations

import pytest

from studies.figures import described
from studies.validations.record import Points, Row
from studies.validations.residuals import residuals
from tests.studies.validations.test_figures import record

POINTS = (Points(metric="ttft", group="a", each="request", measured=(1.0, 2.0), predicted=(1.1, 1.8)),)


def test_each_request_is_off_by_its_prediction_over_its_measurement():
    rows = (Row(metric="mean_ttft_ms", measured=1500.0, predicted=1450.0, error=-0.03, noise=0.2),)
    figure = residuals(record(points=POINTS, rows=rows), "ttft")
    assert figure["data"][0]["y"] == pytest.approx([10.0, -10.0])
    assert figure["layout"]["shapes"][0]["y1"] == pytest.approx(20.0)
    assert "100 % are within ± 20 %" in described(figure)


def test_without_noise_there_is_no_band_and_without_points_it_is_said():
    assert residuals(record(points=POINTS), "ttft")["layout"]["shapes"] == []
    assert "says why" in str(residuals(record(absent={"points": "says why"}), "ttft"))
