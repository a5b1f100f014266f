"""Requests that a passive site hands on: its time limit, and the answer that it puts together."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.topics import alter_partition_reassignments, list_partition_reassignments
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import ANSWERED_WITHIN_MS, TIMEOUT_MS, ActiveSite, answer_within_ms
from runtime.addresses import HostPort
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

LINK = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    epoch=1,
    active_site="a",
    phase=LinkPhase.MIRRORING,
    topic_whitelist=["carried.*"],
    is_routed=True,
)
ALTER, LIST = 45, 46


def topic(name: str) -> TopicInfo:
    return TopicInfo(name=name, topic_id=name.encode().ljust(16), partitions=[PartitionState(partition=0)])


def image_of_b() -> ClusterImage:
    """Site b has a copy of `carried`, and `own` for itself."""
    batch = ControlBatch(
        is_full=True,
        controller_epoch=1,
        brokers=[BrokerInfo(node_id=1001)],
        topics=[topic("carried"), topic("own")],
        links=[LINK],
    )
    broker = BrokerInfo(node_id=1, endpoints=[Endpoint(listener="LINK", host="h", port=1)])
    view = SiteView(site="a", version=1, brokers=[broker], topics=[topic("carried")])
    return with_peer_view(apply_batch(ClusterImage(site="b", node_id=1001), batch), view)


def context(api_key: int, **fields: Any) -> RequestContext:
    known: dict[str, Any] = {"correlation_id": 1, "client_id": "c", "listener": "CLIENT", "client_address": "h"}
    return RequestContext(api_key=api_key, api_version=0, **{**known, **fields})


class SiteA:
    """The brokers of site a: they list these reassignments, and note what they are asked."""

    def __init__(self, *listed: str, is_silent: bool = False) -> None:
        self._listed = listed
        self._is_silent = is_silent
        self.asked: list[Any] = []

    async def ask_site(self, _: Any, site: str, __: Any, request: Any, *, timeout_ms: float | None = None) -> Any:
        assert site == "a"
        return self._answer(request)

    async def answer(
        self, _: Any, asked: RequestContext, request: Any, topics: Any, *, timeout_ms: float | None = None
    ) -> Any:
        return self._answer(request) if set(topics) == {"carried"} else None

    def _answer(self, request: Any) -> Any:
        self.asked.append(request)
        if self._is_silent:
            return None
        if isinstance(request, schemas.request_type(ALTER, 0)):
            part = builder(ALTER, 0).part("ReassignableTopicResponse", name="carried", partitions=())
            fields = {"error_code": ErrorCode.none, "error_message": None}
            return builder(ALTER, 0).response(**fields, responses=(part,))
        return listing(*self._listed)


def listing(*topics: str) -> Any:
    build = builder(LIST, 0)
    parts = (build.part("OngoingTopicReassignment", name=name, partitions=()) for name in topics)
    return build.response(error_code=ErrorCode.none, error_message=None, topics=tuple(parts))


class Controller:
    """The controller of site b, which moves partition 0 of these topics."""

    def __init__(self, *ongoing: str) -> None:
        self._ongoing = ongoing
        self.altered: list[str] = []

    async def list_reassignments(self, request: pb.ListReassignmentsRequest) -> pb.ListReassignmentsReply:
        wanted = {one.topic for one in request.partitions}
        found = [name for name in self._ongoing if request.is_all or name in wanted]
        return pb.ListReassignmentsReply(partitions=[pb.OngoingReassignment(topic=name, partition=0) for name in found])

    async def alter_reassignments(self, request: pb.AlterReassignmentsRequest) -> pb.PartitionResultsReply:
        self.altered += [one.topic for one in request.partitions]
        return pb.PartitionResultsReply(
            results=[pb.PartitionResult(topic=one.topic, partition=one.partition) for one in request.partitions]
        )


def doors(site_a: SiteA, controller: Controller) -> Any:
    async def tell(*_: Any) -> None:
        """No peer gets the request."""

    return SimpleNamespace(
        cluster=Cluster(image_of_b()),
        active_site=site_a,
        controller=controller,
        topic_change_reports=SimpleNamespace(report=tell),
    )


async def listed(site_a: SiteA, controller: Controller, *names: str, **fields: Any) -> list[str]:
    topics = [{"name": name, "partition_indexes": (0,)} for name in names] or None
    request = build_entity(schemas.request_type(LIST, 0), {"timeout": timedelta(seconds=1), "topics": topics})
    answer = await list_partition_reassignments.handle(request, context(LIST, **fields), doors(site_a, controller))
    return [one.name for one in answer.topics]


async def test_reassignments_are_listed_by_the_site_that_leads_the_topic() -> None:
    here = Controller("carried", "own")
    assert await listed(SiteA("carried"), here) == ["own", "carried"]
    assert await listed(SiteA(), here) == ["own"]
    assert await listed(SiteA(is_silent=True), here) == ["carried", "own"]
    assert await listed(SiteA("carried"), Controller(), "carried") == ["carried"]
    assert await listed(SiteA("carried"), here, "own", "carried") == ["own", "carried"]
    assert await listed(SiteA(is_silent=True), here, "carried") == ["carried"]


async def test_programs_of_our_own_see_the_reassignments_of_this_site_alone() -> None:
    site_a = SiteA("carried")
    assert await listed(site_a, Controller("own"), client_software="antipode") == ["own"]
    assert site_a.asked == []


async def test_replicas_are_moved_at_the_site_that_leads_the_topic() -> None:
    site_a, here = SiteA(), Controller()
    values = [{"name": name, "partitions": [{"partition_index": 0, "replicas": (1,)}]} for name in ("own", "carried")]
    request = build_entity(schemas.request_type(ALTER, 0), {"timeout": timedelta(seconds=1), "topics": values})
    answer = await alter_partition_reassignments.handle(request, context(ALTER), doors(site_a, here))
    assert [one.name for one in answer.responses] == ["own", "carried"]
    assert (here.altered, [one.topics[0].name for one in site_a.asked]) == (["own"], ["carried"])


@pytest.mark.parametrize(
    ("timeout_ms", "within_ms"),
    [
        (60_000, TIMEOUT_MS),
        (500, 500 + ANSWERED_WITHIN_MS),
        (0, 1 + ANSWERED_WITHIN_MS),
        (2**31 - 1, TIMEOUT_MS),
    ],
)
async def test_a_handed_on_request_keeps_to_the_client_s_time_and_to_ours(
    timeout_ms: int, within_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = build_entity(
        schemas.request_type(LIST, 0), {"timeout": timedelta(milliseconds=timeout_ms), "topics": None}
    )
    assert answer_within_ms(request) == within_ms
    allowed: list[float | None] = []

    class Peer:
        address = HostPort("h", 1)

        def version_for(self, _: int, *, highest: int) -> int:
            return highest

        async def request(self, *_: Any, timeout_ms: float | None = None, **__: Any) -> Any:
            allowed.append(timeout_ms)
            raise TimeoutError

    async def get(_: Any) -> Peer:
        return Peer()

    active = ActiveSite()
    monkeypatch.setattr(active, "_pool", SimpleNamespace(get=get))
    assert await active.answer(image_of_b(), context(LIST), request, ["carried"]) is None
    assert allowed == [within_ms]


@pytest.mark.parametrize(
    ("partitions", "within_ms"), [(1, TIMEOUT_MS), (-1, TIMEOUT_MS), (20_000, 60_000 + ANSWERED_WITHIN_MS)]
)
def test_many_new_partitions_may_take_the_client_s_whole_time(partitions: int, within_ms: float) -> None:
    topic = SimpleNamespace(num_partitions=partitions, assignments=())
    request = SimpleNamespace(timeout=timedelta(seconds=60), topics=(topic,))
    assert answer_within_ms(request) == within_ms


def test_a_request_that_names_no_time_keeps_to_ours() -> None:
    assert answer_within_ms(SimpleNamespace(resources=())) == TIMEOUT_MS
