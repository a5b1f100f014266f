"""What `antipode links describe --mirror` shows of a mirror's answer."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cli.links import links
from tests.support.embedded.commands import app
from wire.control.mirror_pb2 import DescribeMirrorReply, RefusedChange

REPLY = DescribeMirrorReply(
    link="a-b",
    state="MIRRORING",
    refused_changes=[
        RefusedChange(topic="orders", reason="no such flavour", way_out="cure it at the source", since_ms=1_000)
    ],
)


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "describe_mirror", lambda *_: REPLY)


def test_refused_changes_are_listed_with_their_way_out() -> None:
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["links", "describe", "a-b", "--mirror", "x:1"])
    assert shown.exit_code == 0, shown.output
    for part in ("changes that the target refuses", "orders", "no such flavour", "cure it at the source", "1970"):
        assert part in shown.output


def test_refused_changes_are_in_the_json() -> None:
    shown = CliRunner().invoke(app, ["links", "describe", "a-b", "--mirror", "x:1", "--output", "json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["refused_changes"] == [
        {"topic": "orders", "reason": "no such flavour", "way_out": "cure it at the source", "since_ms": 1_000}
    ]
