"""Requests about ACLs, quotas and SCRAM users that reach a standby: the active site answers those
of other software than ours, and no change is made at the standby alone.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.configs import alter_client_quotas, describe_client_quotas
from broker.handlers.security import (
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
)
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.request_context import FORWARDED_CLIENT_ID, RequestContext
from broker.network.entities import builder
from broker.site.followed_site import followed_site
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME
from wire.protocol.schemas import request_type
from wire.rules.acls import Operation, PatternType, Permission, ResourceType

CHANGES = {
    create_acls: "antipode acls",
    delete_acls: "antipode acls",
    alter_client_quotas: "antipode quotas",
    alter_user_scram_credentials: "antipode users",
}
"""The requests that change rules, each with the command for one site."""
LISTS = (describe_acls, describe_client_quotas, describe_user_scram_credentials)
KAFKAS_TOOL = "apache-kafka-java"
ACL = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": Operation.READ,
    "permission_type": Permission.ALLOW,
}
FILTER = {
    "resource_type_filter": ResourceType.TOPIC,
    "resource_name_filter": "orders",
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}
QUOTA = {
    "entity": ({"entity_type": "user", "entity_name": "alice"},),
    "ops": ({"key": "producer_byte_rate", "value": 1000.0, "remove": False},),
}


def link(name: str, active: str, *, is_routed: bool = True) -> LinkRecord:
    source, target = name.split("-")
    return LinkRecord(
        name=name,
        source_site=source,
        target_site=target,
        active_site=active,
        epoch=1,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=[f"{name}.*"],
        is_routed=is_routed,
    )


def image_of_b(*links: LinkRecord) -> ClusterImage:
    return apply_batch(ClusterImage(site="b", node_id=1001), ControlBatch(is_full=True, links=links))


@pytest.mark.parametrize(
    ("links", "followed"),
    [
        ((), None),
        ((link("a-b", "a"),), "a"),
        ((link("a-b", "b"),), None),
        ((link("a-b", "a", is_routed=False),), None),
        ((link("a-b", "a"), link("c-b", "a")), "a"),
        ((link("a-b", "a"), link("c-b", "c")), None),
        ((link("a-b", "a"), link("b-a", "b")), None),
        ((link("a-b", "a"), link("c-b", "")), None),
    ],
)
def test_a_site_follows_the_one_that_is_active_for_all_its_links(
    links: tuple[LinkRecord, ...], followed: str | None
) -> None:
    assert followed_site(image_of_b(*links)) == followed


class Scene:
    """A broker of the standby b, the active site a, and what the controller of b is asked."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self.answer = None if is_silent else object()
        self.changes: list[Any] = []
        self.image = image_of_b(link("a-b", "a"))
        self.doors: Any = SimpleNamespace(
            active_site=self, authorizer=SimpleNamespace(is_enabled=True), cluster=self, controller=self
        )

    async def ask_site(self, _: ClusterImage, site: str, *__: Any) -> Any:
        assert site == "a"
        return self.answer

    async def alter_acls(self, request: pb.AlterAclsRequest) -> pb.AlterAclsReply:
        self.changes.append(request)
        return pb.AlterAclsReply(results=[pb.AclResult()])

    async def alter_client_quotas(self, request: pb.AlterClientQuotasRequest) -> pb.AlterClientQuotasReply:
        self.changes.append(request)
        return pb.AlterClientQuotasReply(results=[pb.QuotaResult()])

    async def alter_scram_users(self, request: pb.AlterScramUsersRequest) -> pb.AlterScramUsersReply:
        self.changes.append(request)
        return pb.AlterScramUsersReply(results=[pb.QuotaResult()])


def context(module: Any, software: str = KAFKAS_TOOL, client_id: str = "c") -> RequestContext:
    return RequestContext(
        api_key=module.API_KEY,
        api_version=module.MAX_VERSION,
        correlation_id=1,
        client_id=client_id,
        listener="CLIENT",
        client_address="h:1",
        client_software=software,
    )


def request(module: Any) -> Any:
    fields = {
        create_acls: {"creations": (ACL,)},
        delete_acls: {"filters": (FILTER,)},
        describe_acls: FILTER,
        alter_client_quotas: {"entries": (QUOTA,), "validate_only": False},
        describe_client_quotas: {"components": (), "strict": False},
        alter_user_scram_credentials: {"deletions": ({"name": "alice", "mechanism": 1},), "upsertions": ()},
        describe_user_scram_credentials: {"users": None},
    }
    return build_entity(request_type(module.API_KEY, module.MAX_VERSION), fields[module])


@pytest.mark.parametrize("module", [*CHANGES, *LISTS])
async def test_a_request_of_kafkas_tools_gets_the_active_sites_answer(module: Any) -> None:
    scene = Scene()
    assert await module.handle(request(module), context(module), scene.doors) is scene.answer
    assert scene.changes == []


@pytest.mark.parametrize("module", CHANGES)
async def test_nothing_is_changed_while_the_active_site_is_silent(module: Any) -> None:
    scene = Scene(is_silent=True)
    answer = await module.handle(request(module), context(module), scene.doors)
    (result,) = next(
        getattr(answer, name) for name in ("results", "filter_results", "entries") if hasattr(answer, name)
    )
    assert result.error_code is ErrorCode.policy_violation
    assert f"`{CHANGES[module]}` changes the" in result.error_message
    assert scene.changes == []


@pytest.mark.parametrize(
    ("module", "found"),
    [(describe_acls, "resources"), (describe_client_quotas, "entries"), (describe_user_scram_credentials, "results")],
)
async def test_a_list_shows_the_own_rules_while_the_active_site_is_silent(module: Any, found: str) -> None:
    scene = Scene(is_silent=True)
    answer = await module.handle(request(module), context(module), scene.doors)
    fields: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None, found: ()}
    assert answer == builder(module.API_KEY, module.MAX_VERSION).response(**fields)


@pytest.mark.parametrize("given", [{"software": CLIENT_SOFTWARE_NAME}, {"client_id": FORWARDED_CLIENT_ID}])
@pytest.mark.parametrize("module", CHANGES)
async def test_own_tools_and_brokers_change_the_site_that_they_ask(module: Any, given: dict[str, str]) -> None:
    scene = Scene()
    await module.handle(request(module), context(module, **given), scene.doors)
    assert len(scene.changes) == 1
