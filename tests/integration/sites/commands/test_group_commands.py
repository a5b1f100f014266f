"""`antipode groups` on a pair of sites."""

from __future__ import annotations

import pytest

from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.command_pair import CommandPair
from tests.support.eventually import eventually_sync

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_group_is_described_reset_and_deleted(pair: CommandPair, orders: str) -> None:
    def at_a(*arguments: str) -> tuple[str, ...]:
        return pair.at("a", "groups", *arguments)

    librdkafka_consume(pair.sites.bootstrap("a"), orders, 60, group="board")
    assert {"group": "board", "state": "empty"} in pair.json(*at_a("list"))
    described = pair.json(*at_a("describe", "board"))
    (position,) = [row for row in described["partitions"] if row["partition"] == 0]
    assert position == {
        "topic": orders,
        "partition": 0,
        "committed": 60,
        "end_offset": 100,
        "lag": 40,
        "member": None,
    }
    assert "empty, 0 members, 40 records behind" in pair.run(*at_a("describe", "board")).stdout

    reset = ("reset-offsets", "board", "--topic", orders, "--to")
    assert "add --execute to do it" in pair.run(*at_a(*reset, "earliest")).stdout
    assert pair.json(*at_a("describe", "board"))["partitions"][0]["committed"] == 60
    for to, expected in (("earliest", 0), ("latest", 100), ("offset:30", 30), ("offset:999", 100), ("1000", 0)):
        moved = pair.json(*at_a(*reset, to, "--execute"))
        assert (moved["is_executed"], moved["offsets"]["0"]) == (True, expected)
    assert pair.json(*at_a("describe", "board"))["partitions"][0]["committed"] == 0
    assert pair.json(*at_a("delete", "board", "--yes")) == {"group": "board"}
    assert "board" not in [row["group"] for row in pair.json(*at_a("list"))]


def test_a_group_with_members_is_neither_reset_nor_deleted(pair: CommandPair, orders: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": pair.sites.bootstrap("a"), "group.id": "living", "client.id": "reader"})
    try:
        consumer.subscribe([orders])
        eventually_sync(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2)
        described = pair.json(*pair.at("a", "groups", "describe", "living"))
        assert [member["client_id"] for member in described["members"]] == ["reader"]
        assert [row["member"] for row in described["partitions"]] == ["reader", "reader"]
        complaint = pair.run(*pair.at("a", "groups", "delete", "living", "--yes"), code=1).stderr
        assert "NON_EMPTY_GROUP" in complaint
        reset = ("groups", "reset-offsets", "living", "--topic", orders, "--to", "latest", "--execute")
        assert "living" in pair.run(*pair.at("a", *reset), code=1).stderr
    finally:
        consumer.close()
