"""Forwarded writes reach the leader of each partition at the other site; a lost answer is not taken
for a refusal.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.site.forwarded_writes import ForwardedWrites
from tests.support.clients.scripted_broker import NO_TIME, ScriptedBroker
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol.ids import ACKS_ALL
from wire.protocol.messages.produce_codec import API_KEY, PartitionRecords, ProduceRequest, TopicRecords
from wire.protocol.streams.frames import RequestHeader, VersionRange

FIRST, SECOND, NO_LEADER = 1001, 1002, -1
TOPIC_ID = uuid.uuid4()


def topic(leaders: Mapping[int, int]) -> TopicInfo:
    partitions = [PartitionState(partition=index, leader=leader) for index, leader in leaders.items()]
    return TopicInfo(name="t", topic_id=TOPIC_ID.bytes, partitions=partitions)


def image(brokers: Mapping[int, ScriptedBroker], leaders: Mapping[int, int]) -> ClusterImage:
    """Site a's, which is passive."""
    link = LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site="b",
        epoch=2,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=["t"],
        is_routed=True,
    )
    batch = ControlBatch(is_full=True, topics=[topic(dict.fromkeys(leaders, 1))], links=[link])
    infos = [
        BrokerInfo(node_id=node, endpoints=[Endpoint(listener="LINK", host=one.address.host, port=one.address.port)])
        for node, one in brokers.items()
    ]
    view = SiteView(site="b", version=1, brokers=infos, topics=[topic(leaders)])
    return with_peer_view(apply_batch(ClusterImage(site="a", node_id=1), batch), view)


def written(request: Any, header: RequestHeader) -> Mapping[str, Any]:
    """Offset 10 in partition 0, 11 in partition 1 and so on."""
    results = [
        {
            "index": one.index,
            "error_code": ErrorCode.none,
            "base_offset": 10 + one.index,
            "log_append_time": None,
            "log_start_offset": 0,
            "record_errors": (),
            "error_message": None,
        }
        for topic in request.topic_data
        for one in topic.partition_data
    ]
    return {"responses": [{"name": "t", "partition_responses": results}], "throttle_time": NO_TIME}


VERSIONS = VersionRange(3, 9)


@pytest.fixture
async def writes() -> AsyncIterator[ForwardedWrites]:
    writes = ForwardedWrites()
    yield writes
    await writes.close()


def request(*partitions: int) -> ProduceRequest:
    """A request of a client that knows the topic by its id alone."""
    records = [PartitionRecords(index, b"") for index in partitions]
    return ProduceRequest(None, ACKS_ALL, 500, [TopicRecords("", TOPIC_ID, records)])


async def test_each_leader_gets_its_partitions_and_the_results_keep_the_order(writes: ForwardedWrites) -> None:
    async with ScriptedBroker() as first, ScriptedBroker() as second:
        for broker in (first, second):
            broker.on(API_KEY, written, VERSIONS)
        found = await writes.results(
            image({FIRST: first, SECOND: second}, {0: SECOND, 1: FIRST, 2: SECOND, 3: NO_LEADER}), request(2, 1, 3, 0)
        )
        assert [(one.partition_index, one.error_code, one.base_offset) for one in found[0].partitions] == [
            (2, ErrorCode.none, 12),
            (1, ErrorCode.none, 11),
            (3, ErrorCode.not_leader_or_follower, -1),
            (0, ErrorCode.none, 10),
        ]
        assert found[0].topic_id == TOPIC_ID
        asked = [header.client_id for header, _ in first.seen if header.api_key == API_KEY]
        assert asked == [FORWARDED_CLIENT_ID]


async def test_a_leader_that_cannot_be_reached_has_written_nothing(writes: ForwardedWrites) -> None:
    async with ScriptedBroker() as broker:
        known = image({FIRST: broker}, {0: FIRST})
    found = await writes.results(known, request(0))
    assert [one.error_code for one in found[0].partitions] == [ErrorCode.not_leader_or_follower]


async def test_the_outcome_of_a_lost_answer_is_unknown(writes: ForwardedWrites) -> None:
    async with ScriptedBroker() as broker:

        async def lose(*_: Any) -> None:
            broker.cut()

        broker.on(API_KEY, lose, VERSIONS)
        found = await writes.results(image({FIRST: broker}, {0: FIRST}), request(0))
    assert [one.error_code for one in found[0].partitions] == [ErrorCode.request_timed_out]


async def test_a_refusal_of_the_broker_is_not_passed_on_as_one_of_the_client(writes: ForwardedWrites) -> None:
    async with ScriptedBroker() as broker:

        async def refuse(request: Any, *given: Any) -> Any:
            answer = written(request, *given)
            for topic in answer["responses"]:
                for partition in topic["partition_responses"]:
                    partition["error_code"] = ErrorCode.topic_authorization_failed
            return answer

        broker.on(API_KEY, refuse, VERSIONS)
        found = await writes.results(image({FIRST: broker}, {0: FIRST}), request(0))
    assert [one.error_code for one in found[0].partitions] == [ErrorCode.not_leader_or_follower]
