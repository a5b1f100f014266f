"""A mirror whose certificate is limited to its link (`antipode.mirror.principals`): it carries this
link's topics. Both sites refuse it the topics of another link or of no link.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.network.answered_errors import errors_in
from dr.links.administration import create_link
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.patient_options import patient_options
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, FullSite, LinkedSites
from tests.support.processes.processes import Processes
from tests.support.security.identities import Identities
from wire.client.raw_client import KafkaClient
from wire.client.requests.acl_requests import create_acls
from wire.client.requests.broker_requests import OffsetQuery
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.client.security import load_security, secured
from wire.protocol.ids import DEBUGGING_CONSUMER, MIRROR
from wire.protocol.messages.access_change_messages import ACCESS_CHANGES, STANDBY_RULES
from wire.protocol.messages.delegation_token_messages import CLIENT_TOKEN_REQUEST, DELEGATION_TOKENS
from wire.protocol.messages.link_messages import LINK_PROGRESS
from wire.protocol.messages.mirror_append_codec import MirrorAppend, PartitionToMirror, TopicToMirror
from wire.protocol.messages.mirror_report_messages import MIRROR_REPORTS
from wire.protocol.messages.private import MIRROR_OFFSET_COMMIT, link_claim
from wire.protocol.messages.quarantine_messages import LIST, QUARANTINE
from wire.protocol.messages.scram_user_messages import SCRAM_USERS
from wire.rules.mirror_rights import IN_BOTH_DIRECTIONS, acl_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

OWN, OTHERS, LOCAL = "orders", "salaries", "drafts"
OTHER_LINK = "of-salaries"
PRINCIPAL = "User:CN=mirror-orders"
PATIENT_MS = 120_000
NO_CLUSTER, NO_TOPIC = ErrorCode.cluster_authorization_failed, ErrorCode.topic_authorization_failed


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities(tmp_path / "identities")


@pytest.fixture
async def sites(
    processes: Processes, tmp_path: Path, zookeeper_connect: str, identities: Identities
) -> AsyncIterator[LinkedSites]:
    properties = {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,LINK:SSL",
        "inter.broker.listener.name": "LINK",
        "ssl.keystore.location": str(identities.issue("broker")),
        "ssl.truststore.location": str(identities.trusted),
        "listener.name.link.ssl.client.auth": "required",
        "authorizer.class.name": "antipode.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:CN=broker",
        "antipode.mirror.principals": f"{LINK}={PRINCIPAL};{OTHER_LINK}=User:CN=mirror-salaries",
    }
    given = {"a": properties, "b": properties}
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect, properties=given)
    yield pair
    await pair.channels.close()


def shown(identities: Identities, name: str) -> dict[str, str]:
    """The options of a client with the certificate of this name."""
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(identities.trusted),
        "ssl.keystore.location": str(identities.issue(name)),
    }


async def prepare(sites: LinkedSites, identities: Identities) -> None:
    """Two links, each with a topic, and a topic that no link carries; the mirror of the first one
    has copied its topic.
    """
    for site in (sites.a, sites.b):
        async with KafkaClient(site.bootstrap, site_local=True) as admin:
            await create_acls(admin, [acl_of(PRINCIPAL, right) for right in IN_BOTH_DIRECTIONS])
    await sites.link(topics=(OWN,))
    other = replace(sites.spec(topics=(OTHERS,)), name=OTHER_LINK)
    await create_link(other, source=sites.client("a"), target=sites.client("b"))
    for topic in (OWN, OTHERS, LOCAL):
        await sites.create_topic(topic)
        await asyncio.to_thread(librdkafka_produce, sites.a.bootstrap, topic, [Record(b"one"), Record(b"two")])
    login = shown(identities, "mirror-orders")
    sites.start_mirror(settings={f"{end}.{key}": text for end in ("source", "target") for key, text in login.items()})

    async def is_carried() -> bool:
        return (await sites.ends("b")).get((OWN, 0)) == 2

    await eventually(is_carried, PATIENT_MS)


def client(site: FullSite, login: Mapping[str, str]) -> KafkaClient:
    options = secured(patient_options(), load_security(dict(login)))
    return KafkaClient(site.link, options, site_local=True)


def audited(site: FullSite) -> list[str]:
    """Refusals of private requests, as the site's audit log has them."""
    lines = (line.replace('"', "") for line in site.process.log_text().splitlines())
    return [line for line in lines if "antipode.audit" in line and "denied" in line and PRINCIPAL in line]


async def test_a_mirror_s_certificate_opens_what_its_own_link_carries_and_nothing_else(
    sites: LinkedSites, identities: Identities
) -> None:
    await prepare(sites, identities)
    async with KafkaClient(sites.a.bootstrap, site_local=True) as admin:
        described = (await admin.metadata([OWN, OTHERS, LOCAL])).topics
        node = described[OWN].partitions[0].leader_id
    ids = {name: topic.topic_id for name, topic in described.items()}
    login = shown(identities, "mirror-orders")
    async with client(sites.a, login) as reader:
        assert set((await reader.metadata(None)).topics) - {"__consumer_offsets", "__transaction_state"} == {OWN}
        for topic, refusal in ((OWN, ErrorCode.none), (OTHERS, NO_TOPIC), (LOCAL, NO_TOPIC)):
            for replica_id in (MIRROR, DEBUGGING_CONSUMER):
                wanted = [TopicToFetch(topic, ids[topic], [PartitionToFetch(0, 0, 1 << 20)])]
                request = FetchRequest(wanted, max_wait_ms=0, min_bytes=0, replica_id=replica_id)
                (fetched,) = (await reader.fetch(node, request)).topics[0].partitions
                assert fetched.error_code == refusal, (topic, replica_id)
                assert bool(fetched.records) is (refusal is ErrorCode.none)
                queries = {(topic, 0): OffsetQuery(timestamp=-1)}
                listed = await reader.list_offsets(node, queries, replica_id=replica_id)
                assert listed[topic, 0].error_code == refusal, (topic, replica_id)
    async with client(sites.b, login) as writer:
        await refused_at_the_standby(writer, sites.b, ids)


async def refused_at_the_standby(writer: KafkaClient, standby: FullSite, ids: Mapping[str, Any]) -> None:
    """Requests in the name of the other link, and those that no mirror sends."""
    node = (await writer.metadata([])).controller_id
    append = MirrorAppend(OTHER_LINK, 1, [TopicToMirror(OTHERS, ids[OTHERS], [PartitionToMirror(0, 0, 2, 0, 0, b"")])])
    (answer,) = (await writer.mirror_append(node, append)).topics[0].partitions
    assert answer.error_code is NO_CLUSTER
    reason = f"{PRINCIPAL} acts for link {LINK} alone (antipode.mirror.principals), not for link '{OTHER_LINK}'"
    assert answer.error_message == reason
    own = MirrorAppend(LINK, 1, [TopicToMirror(OWN, ids[OWN], [PartitionToMirror(0, 2, 2, 0, 0, b"")])])
    (answer,) = (await writer.mirror_append(node, own)).topics[0].partitions
    assert answer.error_code is ErrorCode.none, answer
    connection = await writer.connection(node)
    commit = {
        "group_id": "",
        "generation_id_or_member_epoch": -1,
        "member_id": "1",
        "group_instance_id": link_claim(OTHER_LINK, 1),
        "topics": [{"name": OTHERS, "partitions": [_offset()]}],
    }
    attempts: dict[int, Mapping[str, Any]] = {
        LINK_PROGRESS: {"link": OTHER_LINK, "link_epoch": 1, "topics": ()},
        MIRROR_OFFSET_COMMIT: commit,
        MIRROR_REPORTS: {
            "link": OTHER_LINK,
            "link_epoch": 1,
            "session_id": 0,
            "source_seen_at_ms": 1,
            "removed": (),
            "added": (),
        },
        SCRAM_USERS: {"link": OTHER_LINK, "link_epoch": 1, "users": ()},
        DELEGATION_TOKENS: {"link": OTHER_LINK, "link_epoch": 1, "tokens": ()},
        ACCESS_CHANGES: {"link": OTHER_LINK, "mark": "", "max_wait_ms": 1},
        STANDBY_RULES: {"link": OTHER_LINK, "link_epoch": 1, "acls": (), "quotas": (), "group_configs": ()},
        CLIENT_TOKEN_REQUEST: {
            "principal_type": "User",
            "principal_name": "admin",
            "client_address": "127.0.0.1:1",
            "request_key": 41,
            "request_version": 3,
            "request": b"",
        },
        QUARANTINE: {"action": LIST, "name": "", "position": 0},
    }
    for api_key, values in attempts.items():
        assert set(errors_in(await connection.call(api_key, values))) == {NO_CLUSTER}, api_key
    audit = audited(standby)
    assert [("MirrorAppend" in line, f"link={OTHER_LINK}" in line) for line in audit[:1]] == [(True, True)], audit
    assert len(audit) == 1 + len(attempts), audit


def _offset() -> dict[str, Any]:
    return {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
