"""A real gRPC server and its callers: certificates, tokens, none, and files that are replaced."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from runtime.configuration import ConfigurationError
from runtime.grpc_server import GrpcServer, Protection, open_channel, protect_control_plane
from runtime.metrics import new_registry
from tests.support.security.identities import Identities
from wire.access.core.callers import token_line
from wire.access.core.roles import Role
from wire.access.protection import check_daemon, protect_client, protect_daemon
from wire.control import controller_pb2 as pb
from wire.control import site_pb2 as site
from wire.control.cluster_pb2 import BrokerInfo, LinkRecord, SiteView, TopicInfo
from wire.control.controller_pb2_grpc import ControllerServicer, ControllerStub, add_ControllerServicer_to_server
from wire.control.site_pb2_grpc import SiteAgentServicer, SiteAgentStub, add_SiteAgentServicer_to_server
from wire.tls import shown_certificates

HOST = "127.0.0.1"


LINKS = ("a-b", "c-d")


class Agent(SiteAgentServicer):
    """An agent of a site with two links; it grants every request that reaches it."""

    async def ListLinks(self, request: site.ListLinksRequest, context: Any) -> site.ListLinksReply:
        links = [site.LinkStatus(record=LinkRecord(name=name)) for name in LINKS]
        return site.ListLinksReply(site="a", links=links)

    async def GetSiteView(self, request: site.GetSiteViewRequest, context: Any) -> site.GetSiteViewReply:
        links = [LinkRecord(name=name) for name in LINKS]
        view = SiteView(brokers=[BrokerInfo(node_id=1)], topics=[TopicInfo(name="orders")], links=links)
        return site.GetSiteViewReply(view=view)

    async def DeleteLink(self, request: site.DeleteLinkRequest, context: Any) -> site.LinkReply:
        if request.name == "unknown":
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no link 'unknown'")
        return site.LinkReply()


@pytest.fixture(autouse=True)
def plaintext_again() -> Iterator[None]:
    yield
    protect_control_plane(Protection())


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities(tmp_path / "identities")


class Topics(ControllerServicer):
    """A controller that grants every request that reaches it."""

    async def CreateTopics(self, request: pb.CreateTopicsRequest, context: Any) -> pb.CreateTopicsReply:
        return pb.CreateTopicsReply()

    async def DeleteTopics(self, request: pb.DeleteTopicsRequest, context: Any) -> pb.DeleteTopicsReply:
        return pb.DeleteTopicsReply()

    async def CreatePartitions(self, request: pb.CreatePartitionsRequest, context: Any) -> pb.CreatePartitionsReply:
        return pb.CreatePartitionsReply()

    async def AlterTopicConfigs(self, request: pb.AlterTopicConfigsRequest, context: Any) -> pb.AlterTopicConfigsReply:
        return pb.AlterTopicConfigsReply()


@asynccontextmanager
async def served(properties: Mapping[str, str]) -> AsyncIterator[str]:
    """The address of an agent whose process has these properties."""
    protect_daemon(properties)
    server = GrpcServer(HOST, 0)
    add_SiteAgentServicer_to_server(Agent(), server.server)  # type: ignore[no-untyped-call]
    add_ControllerServicer_to_server(Topics(), server.server)  # type: ignore[no-untyped-call]
    port = await server.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        await server.stop(grace_s=0)


async def asked(
    address: str, properties: Mapping[str, str], method: str, request: Any, *, service: Any = SiteAgentStub
) -> str:
    """The answer as a process with these properties gets it: OK, or the code and the words."""
    protect_control_plane(Protection())
    protect_client(properties)
    async with open_channel(address) as channel:
        try:
            await getattr(service(channel), method)(request, timeout=10)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {error.details()}"
        return "OK"


LOOK = ("ListLinks", site.ListLinksRequest())
DELETE = ("DeleteLink", site.DeleteLinkRequest(name="a-b", epoch=3))


async def test_wrong_callers_are_counted_and_write_no_line_of_grpc(
    identities: Identities, capfd: pytest.CaptureFixture[str]
) -> None:
    server = identities.control("broker-1", "antipode://broker/broker-1")
    operator = identities.control("operator", "antipode://operator/ann")
    stranger = Identities(identities.directory / "other").control("x", "antipode://operator/eve")
    async with served(server) as address:
        before = control_connections()
        assert (await asked(address, stranger, *LOOK)).startswith("UNAVAILABLE")
        assert await asked(address, operator, *LOOK) == "OK"
        connections, calling = (now - then for now, then in zip(control_connections(), before, strict=True))
        assert calling == 1
        assert connections > calling
    assert "andshake" not in capfd.readouterr().err


def control_connections() -> list[float]:
    """The connections to the port of this process, and those of them that made a call."""
    registry = new_registry()
    names = ("antipode_control_connections_total", "antipode_control_calling_connections_total")
    found = [registry.get_sample_value(name) for name in names]
    return [value for value in found if value is not None]


async def test_an_expired_certificate_of_the_control_plane_is_a_warning_at_the_start(
    identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_certificates, "_shown", {})
    server = identities.control("broker-1", "antipode://broker/broker-1")
    identities.issue("broker-1", "antipode://broker/broker-1", days=0)
    with capture_logs() as lines:
        async with served(server):
            pass
    warned = [(line["listener"], line["subject"]) for line in lines if "not_after" in line]
    assert warned == [("control", "CN=broker-1")]


async def test_certificates_give_roles_and_every_change_and_refusal_is_audited(identities: Identities) -> None:
    server = identities.control("broker-1", "antipode://broker/broker-1")
    viewer = identities.control("viewer", "antipode://viewer/bob")
    operator = identities.control("operator", "antipode://operator/ann")
    nameless = identities.control("nameless")
    async with served(server) as address:
        with capture_logs() as lines:
            assert await asked(address, viewer, *LOOK) == "OK"
            refused = await asked(address, viewer, *DELETE)
            assert (
                refused
                == "PERMISSION_DENIED bob has role viewer and may not call DeleteLink, which needs role operator"
            )
            assert await asked(address, operator, *DELETE) == "OK"
            unknown = ("DeleteLink", site.DeleteLinkRequest(name="unknown"))
            assert (await asked(address, operator, *unknown)).startswith("NOT_FOUND")
            assert "CN=nameless has no role" in await asked(address, nameless, *LOOK)
            for stranger in ({}, Identities(identities.directory / "other").control("x", "antipode://operator/eve")):
                assert (await asked(address, stranger, *DELETE)).startswith("UNAVAILABLE")
    audited = [line for line in lines if "outcome" in line]
    shown = [(line["event"], line["principal"], line["outcome"], line.get("link")) for line in audited]
    assert shown == [
        ("DeleteLink", "bob", "denied", "a-b"),
        ("DeleteLink", "ann", "allowed", "a-b"),
        ("DeleteLink", "ann", "failed", "unknown"),
        ("ListLinks", "CN=nameless", "denied", None),
    ]
    assert "NOT_FOUND: there is no link 'unknown'" in audited[2]["reason"]
    assert all(line["address"].startswith(HOST) and line["interface"] == "grpc" for line in audited)


OTHER_LINK = "mirror a-b@host1 acts for link 'a-b' and may not call {} in the name of link 'c-d'"


@pytest.mark.parametrize(
    ("method", "own", "others"),
    [
        (
            "CreateTopics",
            pb.CreateTopicsRequest(topics=[pb.NewTopic(name="x", link="a-b")]),
            pb.CreateTopicsRequest(topics=[pb.NewTopic(name="x", link="a-b"), pb.NewTopic(name="y", link="c-d")]),
        ),
        (
            "CreatePartitions",
            pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="x", link="a-b")]),
            pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="x", link="c-d")]),
        ),
        (
            "AlterTopicConfigs",
            pb.AlterTopicConfigsRequest(changes=[pb.TopicConfigChange(name="x", link="a-b")]),
            pb.AlterTopicConfigsRequest(changes=[pb.TopicConfigChange(name="x", link="c-d")]),
        ),
        (
            "DeleteTopics",
            pb.DeleteTopicsRequest(names=["x"], link="a-b"),
            pb.DeleteTopicsRequest(names=["x"], link="c-d"),
        ),
    ],
)
async def test_the_mirror_of_one_link_changes_no_topic_in_the_name_of_another(
    identities: Identities, method: str, own: Any, others: Any
) -> None:
    mirror = identities.control("mirror", "antipode://mirror/a-b@host1")
    without_link = type(own)()
    without_link.CopyFrom(own)
    for entry in (*getattr(without_link, "topics", ()), *getattr(without_link, "changes", ()), without_link):
        if hasattr(entry, "link"):
            entry.link = ""
    async with served(identities.control("broker-1", "antipode://broker/broker-1")) as address:
        with capture_logs() as lines:
            assert await asked(address, mirror, method, own, service=ControllerStub) == "OK"
            refused = await asked(address, mirror, method, others, service=ControllerStub)
            assert refused == f"PERMISSION_DENIED {OTHER_LINK.format(method)}"
            refused = await asked(address, mirror, method, without_link, service=ControllerStub)
            assert refused.endswith(f"may not call {method} without naming a link")
    audited = [(line["event"], line["principal"], line["outcome"]) for line in lines if "outcome" in line]
    assert audited == [(method, "a-b@host1", outcome) for outcome in ("allowed", "denied", "denied")]


async def test_a_mirror_sees_its_own_link_and_no_topics_of_a_site(identities: Identities) -> None:
    async with served(identities.control("broker-1", "antipode://broker/broker-1")) as address:
        protect_control_plane(Protection())
        protect_client(identities.control("mirror", "antipode://mirror/c-d"))
        async with open_channel(address) as channel:
            stub = SiteAgentStub(channel)  # type: ignore[no-untyped-call]
            listed = await stub.ListLinks(site.ListLinksRequest(), timeout=10)
            view = (await stub.GetSiteView(site.GetSiteViewRequest(), timeout=10)).view
        assert [status.record.name for status in listed.links] == ["c-d"]
        assert [record.name for record in view.links] == ["c-d"]
        assert [broker.node_id for broker in view.brokers] == [1]
        assert not view.topics
        unnamed = identities.control("unnamed", "antipode://mirror/@host1")
        refused = await asked(address, unnamed, *LOOK)
        assert refused.startswith("PERMISSION_DENIED mirror @host1 may not call ListLinks, because its certificate")
        assert "antipode://mirror/LINK" in refused


async def test_subjects_give_roles_where_certificates_have_no_names_of_ours(identities: Identities) -> None:
    server = {
        **identities.control("broker-1", "antipode://broker/broker-1"),
        "antipode.control.role.operator.subjects": "CN=ops-.*",
        "antipode.control.role.viewer.subjects": "CN=ops-guest",
    }
    async with served(server) as address:
        assert await asked(address, identities.control("ops-1"), *DELETE) == "OK"
        refused = await asked(address, identities.control("ops-guest"), *DELETE)
        assert refused.startswith("PERMISSION_DENIED CN=ops-guest has role viewer")


async def test_tokens_are_enough_where_certificates_are_not_demanded_and_can_be_taken_back(
    identities: Identities, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{token_line('cron', Role.OPERATOR, 'secret')}\n", encoding="utf-8")
    server = {
        **identities.control("broker-1", "antipode://broker/broker-1"),
        "antipode.control.ssl.client.auth": "none",
        "antipode.control.tokens.location": str(tokens),
    }
    trusting = {"antipode.control.ssl.truststore.location": str(identities.trusted)}
    async with served(server) as address:
        assert (await asked(address, trusting, *LOOK)).startswith("UNAUTHENTICATED ListLinks needs role ")
        with_token = {**trusting, "antipode.control.token": "secret"}
        assert await asked(address, with_token, *DELETE) == "OK"
        wrong = {**trusting, "antipode.control.token": "secrets"}
        assert "the token is not known" in await asked(address, wrong, *LOOK)
        tokens.write_text("# none\n", encoding="utf-8")
        assert "the token is not known" in await asked(address, with_token, *LOOK)


async def test_a_certificate_that_is_replaced_counts_from_the_next_connection_on(identities: Identities) -> None:
    server = identities.control("broker-1", "antipode://broker/broker-1")
    operator = identities.control("operator", "antipode://operator/ann")
    async with served(server) as address:
        protect_client(operator)
        async with open_channel(address) as kept:
            stub = SiteAgentStub(kept)  # type: ignore[no-untyped-call]
            await stub.ListLinks(LOOK[1], timeout=10)
            other = Identities(identities.directory / "next")
            shutil.copy(
                other.issue("broker-1", "antipode://broker/broker-1"), server["antipode.control.ssl.keystore.location"]
            )
            assert (await asked(address, operator, *LOOK)).startswith("UNAVAILABLE"), "its new authority is not trusted"
            identities.trusted.write_bytes(identities.trusted.read_bytes() + other.trusted.read_bytes())
            assert await asked(address, operator, *LOOK) == "OK"
            identities.trusted.write_text("no certificate at all")
            assert (await stub.ListLinks(LOOK[1], timeout=10)).site == "a", "no connection was dropped"


async def test_health_may_be_asked_by_all_and_a_plaintext_server_audits_too(identities: Identities) -> None:
    server = {
        **identities.control("broker-1", "antipode://broker/broker-1"),
    }
    async with served(server) as address:
        protect_client(identities.control("nameless"))
        async with open_channel(address) as channel:
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
    protect_control_plane(Protection())
    async with served({"antipode.allow.plaintext": "true"}) as address:
        with capture_logs() as lines:
            assert await asked(address, {}, *DELETE) == "OK"
    (line,) = [line for line in lines if "outcome" in line]
    assert (line["principal"], line["outcome"]) == ("anonymous", "allowed")


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, "antipode.control.ssl.keystore.location"),
        ({"antipode.allow.plaintext": "false"}, "antipode.control.ssl.keystore.location"),
        ({"keystore": "key"}, "antipode.control.ssl.truststore.location"),
        ({"truststore": "trust"}, "antipode.control.ssl.keystore.location"),
        ({"keystore": "key", "truststore": "missing"}, "antipode.control.ssl.truststore.location"),
        ({"keystore": "trust", "truststore": "trust"}, "antipode.control.ssl.keystore.location"),
        (
            {"keystore": "key", "truststore": "trust", "antipode.control.ssl.client.auth": "none"},
            "antipode.control.ssl.client.auth",
        ),
        (
            {"keystore": "key", "truststore": "trust", "antipode.control.ssl.client.auth": "requested"},
            "antipode.control.ssl.client.auth",
        ),
        (
            {"keystore": "key", "truststore": "trust", "antipode.control.role.viewer.subjects": "("},
            "antipode.control.role.viewer.subjects",
        ),
        ({"antipode.control.token": "secret word"}, "antipode.control.token"),
        ({"antipode.control.ssl.keystor.location": "x"}, "antipode.control.ssl.keystor.location"),
        (
            {"keystore": "key", "truststore": "trust", "antipode.control.tokens.location": "no"},
            "antipode.control.tokens.location",
        ),
    ],
)
def test_a_daemon_without_a_whole_protection_is_refused_by_the_key(
    given: dict[str, str], key: str, identities: Identities
) -> None:
    files = {"key": identities.issue("k"), "trust": identities.trusted, "missing": identities.directory / "missing"}
    properties = {
        f"antipode.control.ssl.{name}.location" if name in ("keystore", "truststore") else name: str(
            files.get(value, value)
        )
        for name, value in given.items()
    }
    with pytest.raises(ConfigurationError) as refused:
        check_daemon(properties)
    assert refused.value.key == key
    assert "secret word" not in str(refused.value)
