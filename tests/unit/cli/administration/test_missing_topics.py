"""Brokers refuse a topic that is not there without a reason: commands say what to look at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from cli.administration import configs, topics, transactions
from cli.shared.kafka_admin import raise_refusal
from runtime.process import OperationalFailure
from tests.support.embedded.commands import app
from wire.client.raw_client import KafkaClient

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


class OneTopic(KafkaClient):
    """A client of a site whose topic has two partitions."""

    def __init__(self) -> None:
        pass

    async def metadata(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(
            topics={"orders": SimpleNamespace(error_code=ErrorCode.none, partitions={0: None, 1: None})}
        )

    async def close(self) -> None:
        """Nothing is open."""


def test_the_end_of_a_transaction_in_a_partition_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_client", lambda _: OneTopic())
    line = "transactions abort --topic orders --partition 9 --first-offset 3 --yes -b x:1"
    ended = CliRunner().invoke(app, line.split())
    assert ended.exit_code == 1
    assert "--partition 9: topic orders has no such partition; accepted are 0 to 1" in ended.output
