"""Logs are read for commit markers when the log, or a coordinator of the site, knows of
transactions: each may lack what the other knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dr.failover import marker_scan
from dr.failover.marker_scan import logs_with_transactions, survey_transactions
from dr.sites.core.evidence import SiteEvidence, SiteGroups, TransactionalProducer
from dr.sites.core.log_columns import PartitionOrders
from dr.sites.core.positions import PartitionPosition
from tests.unit.dr.core.positions_in_columns import in_columns
from wire.batches.transaction_members import TransactionMembers, encode_members
from wire.batches.transaction_records import encode_marker
from wire.client.raw_client import KafkaClient
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import PartitionKey, TopicPartition

FLIGHTS, SEATS, PLAIN = TopicPartition("flights", 0), TopicPartition("seats", 0), TopicPartition("plain", 0)
DECIDED_AT_MS = 1_700_000_000_000


class Logs:
    """A client that reads logs in memory, and notes which logs it read."""

    def __init__(self, contents: dict[TopicPartition, bytes]) -> None:
        self.contents = contents
        self.read: list[PartitionKey] = []

    async def metadata(self, topics: Iterable[str]) -> None:
        pass

    async def offsets_at(
        self, partitions: Iterable[PartitionKey], timestamp: int, *, replica_id: int
    ) -> dict[PartitionKey, int]:
        return dict.fromkeys(partitions, 0)


def position(log_end_offset: int, *, has_markers: bool) -> PartitionPosition:
    return PartitionPosition(
        leader_epoch=1,
        last_log_epoch=1,
        log_start_offset=0,
        log_end_offset=log_end_offset,
        is_writable=False,
        has_markers=has_markers,
    )


@pytest.mark.parametrize(
    ("producers", "has_markers", "read"),
    [
        pytest.param({}, True, [FLIGHTS], id="the id has not come over the link yet"),
        pytest.param(
            {"booking": TransactionalProducer(7, 0, is_carried=True)},
            False,
            [FLIGHTS, PLAIN],
            id="the log has forgotten its producer",
        ),
    ],
)
async def test_a_torn_transaction_is_found_by_what_the_log_or_a_coordinator_knows(
    monkeypatch: pytest.MonkeyPatch,
    producers: dict[str, TransactionalProducer],
    has_markers: bool,
    read: list[TopicPartition],
) -> None:
    members = TransactionMembers("booking", DECIDED_AT_MS, frozenset({tuple(FLIGHTS), tuple(SEATS)}))
    marker = encode_marker(
        producer_id=7,
        producer_epoch=0,
        is_commit=True,
        coordinator_epoch=3,
        now_ms=DECIDED_AT_MS,
        members=encode_members(members),
    )
    logs = Logs({FLIGHTS: marker})

    async def fetch(client: Logs, place: PartitionKey, offset: int, **_: Any) -> Any:
        client.read.append(place)
        return SimpleNamespace(records=memoryview(client.contents.get(TopicPartition(*place), b"")))

    monkeypatch.setattr(marker_scan, "fetch_at_leader", fetch)
    evidence = SiteEvidence(
        site="b",
        seen_at_ms=DECIDED_AT_MS,
        record=LinkRecord(name="a-b", topic_whitelist=[".*"]),
        partitions={
            FLIGHTS: position(1, has_markers=has_markers),
            SEATS: position(0, has_markers=False),
            PLAIN: position(1_000, has_markers=False),
        },
        groups=SiteGroups(producers=producers),
    )
    found = await survey_transactions(cast("KafkaClient", logs), evidence.record, evidence)
    (torn,) = found.torn
    assert (torn.transactional_id, torn.kept, torn.lacking) == ("booking", ("flights-0",), ("seats-0",))
    assert sorted(logs.read) == sorted(read)


@pytest.mark.parametrize("has_columns", [False, True], ids=["one by one", "in columns"])
def test_logs_without_markers_are_not_read_if_no_coordinator_knows_a_transaction(*, has_columns: bool) -> None:
    positions = {FLIGHTS: position(1, has_markers=True), SEATS: position(5, has_markers=False)}

    def found(*keys: TopicPartition, producers: dict[str, TransactionalProducer] | None) -> list[TopicPartition]:
        logs = {key: positions[key] for key in keys}
        return logs_with_transactions(
            SiteEvidence(
                site="b",
                seen_at_ms=DECIDED_AT_MS,
                record=LinkRecord(name="a-b", topic_whitelist=[".*"]),
                partitions=in_columns(logs, PartitionOrders()) if has_columns else logs,
                groups=SiteGroups(producers=producers),
            )
        )

    assert found(SEATS, producers={}) == []
    assert found(FLIGHTS, SEATS, producers={}) == [FLIGHTS]
    assert found(FLIGHTS, SEATS, producers=None) == [FLIGHTS, SEATS], "no coordinator has answered"
