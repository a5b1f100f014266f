"""Brokers refuse a topic that is not there without a reason: commands say what to look at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from cli.administration import configs, topics
from cli.shared.kafka_admin import raise_refusal
from runtime.process import OperationalFailure
from tests.support.embedded.commands import app

REFUSED = SimpleNamespace(error_code=ErrorCode.unknown_topic_or_partition, error_message=None)


def test_a_deletion_of_a_topic_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask_cluster(*_: Any) -> list[Any]:
        return [REFUSED]

    monkeypatch.setattr(topics, "ask_cluster", ask_cluster)
    ended = CliRunner().invoke(app, ["topics", "delete", "ordrs", "--yes", "-b", "x:1"])
    assert ended.exit_code == 1
    assert "topic ordrs: not there, or this user may not describe it; `antipode topics list`" in ended.output


def test_configs_of_a_topic_that_is_not_there() -> None:
    with pytest.raises(OperationalFailure, match="topic ordrs: not there"):
        configs._raise_refusal(REFUSED, configs._Entity("topic", "ordrs"), "configs of topic ordrs cannot be shown")


def test_acls_without_an_authorizer_name_the_config() -> None:
    refused = SimpleNamespace(error_code=ErrorCode.security_disabled, error_message="No Authorizer is configured.")
    with pytest.raises(OperationalFailure, match=r"set authorizer\.class\.name in the properties of the brokers"):
        raise_refusal(refused, "ACLs")
