"""Streamlit's own files come from memory; all else goes on to Streamlit."""

from __future__ import annotations

import asyncio

import pytest

from dashboard.assets import Assets

ON = b"from streamlit"


@pytest.fixture
def asked(tmp_path):
    """Asks for a path: the headers and the body of the answer."""
    (tmp_path / "static" / "js").mkdir(parents=True)
    (tmp_path / "static" / "js" / "a.js").write_text("1")
    (tmp_path / "index.html").write_text("a page")

    async def streamlit(scope, receive, send):
        await send({"type": "http.response.body", "body": ON})

    assets = Assets(streamlit, tmp_path)

    def call(path: str, method: str = "GET", kind: str = "http") -> tuple[dict[bytes, bytes], bytes]:
        sent = []

        async def send(message):
            sent.append(message)

        asyncio.run(assets({"type": kind, "method": method, "path": path, "headers": []}, None, send))
        headers = {name: value for message in sent for name, value in message.get("headers", [])}
        return headers, b"".join(message.get("body", b"") for message in sent)

    return call


def test_a_file_is_answered_with_its_kind_and_may_be_kept(asked):
    headers, body = asked("/static/js/a.js")
    assert body == b"1"
    assert b"javascript" in headers[b"content-type"]
    assert b"immutable" in headers[b"cache-control"]
    assert asked("/static/js/a.js") == (headers, body)


@pytest.mark.parametrize(
    "path", ["/", "/static/js", "/static/js/b.js", "/static/../index.html", "/index.html", "/static/js/a.js/", ""]
)
def test_everything_else_goes_on(asked, path):
    assert asked(path) == ({}, ON)


def test_only_reading_is_answered(asked):
    assert asked("/static/js/a.js", "POST")[1] == ON
    assert asked("/static/js/a.js", kind="websocket")[1] == ON
