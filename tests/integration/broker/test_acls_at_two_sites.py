"""ACLs, users, quotas and delegation tokens of one real site carried to another one, as the mirror
of an exact link does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dr.sites.core.access_rules import problem_key
from mirror.link.core.link_roles import LinkRole
from mirror.link.known_link import KnownLink
from mirror.topics.access_sync import AccessSync
from mirror.topics.access_watch import AccessWatch
from runtime.clock import SystemClock
from tests.support.embedded.site_access import add_user, remove_user
from tests.support.memory.shared_access import MemorySharedAccess
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.site_broker import SiteBroker
from wire.client.raw_client import KafkaClient
from wire.client.requests.acl_requests import create_acls, delete_acls, describe_acls, exactly
from wire.control import controller_pb2 as pb
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.access_digests import ACLS, TOKENS, tokens_digest
from wire.rules.acls import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from wire.rules.client_quotas import USER, QuotaEntity, entity_message
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.principals import Principal
from wire.znodes.layout import link_path
from wire.znodes.link_znodes import encode_link
from wire.znodes.token_znodes import encode_token, token_message

pytestmark = pytest.mark.integration

ALICE: QuotaEntity = ((USER, "alice"),)
OWNER = Principal("User", "alice")
NEVER_MS = 4_000_000_000_000
TOKEN = DelegationToken("of-alice", OWNER, OWNER, (Principal("User", "bob"),), 1, NEVER_MS, NEVER_MS + 1)


def acl(name: str, who: str = "alice", kind: ResourceType = ResourceType.TOPIC) -> Acl:
    pattern = ResourcePattern(kind, name, PatternType.PREFIXED)
    return Acl(pattern, AccessEntry(f"User:{who}", "*", Operation.READ, Permission.ALLOW))


async def start(zookeeper: ZooKeeperProcess, directory: Path, **properties: str) -> SiteBroker:
    broker = SiteBroker(zookeeper.new_chroot("site"), directory, super_users="User:ANONYMOUS", **properties)
    await broker.start()
    return broker


async def make_standby(site: SiteBroker) -> None:
    """Store a link whose standby the site is."""
    record = LinkRecord(name="a-b", epoch=1, source_site="x", target_site="a", active_site="x", mode="exact")
    record.phase = LinkPhase.MIRRORING
    await site.zookeeper.create(link_path("a-b"), encode_link(record))
    await site.broker.cluster.wait_for(lambda image: "a-b" in image.links, timeout_ms=10_000)


async def set_quota(site: SiteBroker, value: float | None) -> None:
    change = pb.QuotaChange(entity=entity_message(ALICE))
    if value is None:
        change.remove.append("producer_byte_rate")
    else:
        change.set["producer_byte_rate"] = value
    await site.broker.controller.alter_client_quotas(pb.AlterClientQuotasRequest(changes=[change]))


async def set_token(site: SiteBroker, token_id: str, token: DelegationToken | None) -> None:
    change = pb.DelegationTokenChange(token=token_message(token_id, token), is_new=True)
    await site.broker.controller.alter_delegation_tokens(pb.AlterDelegationTokensRequest(tokens=[change]))


def sync(
    source: KafkaClient,
    target: KafkaClient,
    link: Any,
    *,
    shared: MemorySharedAccess | None = None,
    excluded: Sequence[str] = ("User:local.*",),
    interval_ms: int = 100,
    watching: KafkaClient | None = None,
) -> AccessSync:
    return AccessSync(
        source=source,
        target=target,
        watch=AccessWatch(watching or source, lambda: link),
        link=KnownLink(link),
        shared=shared or MemorySharedAccess(),
        clock=SystemClock(),
        interval_ms=interval_ms,
        excluded_principals=excluded,
    )


async def test_acls_and_quotas_follow_the_active_site_and_those_of_the_standby_alone_stay(
    zookeeper_server: ZooKeeperProcess, tmp_path: Path
) -> None:
    authorizer = {"authorizer_class_name": "antipode.AclAuthorizer"}
    a, b = [await start(zookeeper_server, tmp_path / name, **authorizer) for name in "ab"]
    link = SimpleNamespace(role=LinkRole.MIRRORING, name="a-b", epoch=1)
    await make_standby(b)
    try:
        async with (
            KafkaClient(a.bootstrap, site_local=True) as source,
            KafkaClient(b.bootstrap, site_local=True) as target,
        ):
            carried, group, excluded = acl("orders"), acl("reports", kind=ResourceType.GROUP), acl("x", "local-admin")
            standbys = acl("standby-only")
            await create_acls(source, [carried, group, excluded])
            await create_acls(target, [standbys])
            await set_quota(a, 1000.0)
            await asyncio.to_thread(add_user, a.bootstrap, "alice")
            await asyncio.to_thread(add_user, b.bootstrap, "standby-only")
            shared = MemorySharedAccess()
            shared.problem = "no site agent answers"
            access = sync(source, target, link, shared=shared)
            await access.round()
            assert "no site agent answers" in access.problems[problem_key(ACLS)]
            assert not any(access.carried.digests.values()), (
                "a move does not count rules as carried whose removal could be missed"
            )
            assert await describe_acls(target, AclFilter()) == {carried, group, standbys}, (
                "it carries them all the same"
            )
            shared.problem = ""
            await access.round()
            assert access.problems == {}
            assert await describe_acls(target, AclFilter()) == {carried, group, standbys}
            assert b.broker.cluster.image.quotas == {ALICE: {"producer_byte_rate": 1000.0}}
            users = dict(a.broker.cluster.image.scram_users)
            assert users.keys() == {"alice"}
            carried_users = {**users, "standby-only": b.broker.cluster.image.scram_users["standby-only"]}
            assert b.broker.cluster.image.scram_users == carried_users
            await delete_acls(source, [exactly(group)])
            await set_quota(a, None)
            access = sync(source, target, link, shared=shared)
            await access.round()
            assert await describe_acls(target, AclFilter()) == {carried, standbys}, "another daemon removes it"
            assert b.broker.cluster.image.quotas == {}
            await asyncio.to_thread(remove_user, a.bootstrap, "alice")
            await access.round()
            assert b.broker.cluster.image.scram_users.keys() == {"standby-only"}
            await sync(source, target, link, shared=shared, excluded=("User:local.*", "User:alice")).round()
            assert await describe_acls(target, AclFilter()) == {carried, standbys}, (
                "rules of a principal that is excluded later are left alone"
            )
            link.role = LinkRole.TURNED
            await delete_acls(source, [exactly(carried)])
            await access.round()
            assert await describe_acls(target, AclFilter()) == {carried, standbys}, "nothing is written any more"
    finally:
        await a.stop()
        await b.stop()


async def test_tokens_follow_where_both_sites_have_the_same_secret_and_stop_no_move_elsewhere(
    zookeeper_server: ZooKeeperProcess, tmp_path: Path
) -> None:
    authorizer = {"authorizer_class_name": "antipode.AclAuthorizer"}
    secrets = {"a": "of both", "b": "of both", "c": "another one", "d": ""}
    a, b, *others = [
        await start(zookeeper_server, tmp_path / name, **authorizer, delegation_token_secret_key=secret)
        for name, secret in secrets.items()
    ]
    await make_standby(b)
    link = SimpleNamespace(role=LinkRole.MIRRORING, name="a-b", epoch=1)
    try:
        async with (
            KafkaClient(a.bootstrap, site_local=True) as source,
            KafkaClient(b.bootstrap, site_local=True) as target,
        ):
            access = sync(source, target, link)
            await set_token(a, "x", TOKEN._replace(token_id="x", owner=Principal("User", "local-admin")))
            for wanted in (TOKEN, TOKEN._replace(expires_at_ms=TOKEN.expires_at_ms + 1), None):
                await set_token(a, TOKEN.token_id, wanted)
                await access.round()
                assert access.problems == {}
                carried = {} if wanted is None else {TOKEN.token_id: wanted}
                assert b.broker.cluster.image.delegation_tokens == carried, "without those that are excluded"
                stored = a.broker.cluster.image.delegation_tokens.items()
                digest = tokens_digest((token_id, encode_token(token).decode()) for token_id, token in stored)
                assert access.carried.digests[TOKENS] == digest
            for other in others:
                async with KafkaClient(other.bootstrap, site_local=True) as elsewhere:
                    access = sync(source, elsewhere, link)
                    assert access.carried.digests[TOKENS] == "", "it is not known yet"
                    await access.round()
                    assert access.problems == {}
                    assert TOKENS not in access.carried.digests
                    assert other.broker.cluster.image.delegation_tokens == {}
    finally:
        for site in (a, b, *others):
            await site.stop()


async def test_a_change_of_any_rule_is_carried_before_the_next_interval(
    zookeeper_server: ZooKeeperProcess, tmp_path: Path
) -> None:
    """The interval is longer than the test; a source that stops ends the wait, and the watch goes
    on when it is back.
    """
    settings = {"authorizer_class_name": "antipode.AclAuthorizer", "delegation_token_secret_key": "of both"}
    a, b = [await start(zookeeper_server, tmp_path / name, **settings) for name in "ab"]
    await make_standby(b)
    link, there = SimpleNamespace(role=LinkRole.MIRRORING, name="a-b", epoch=1), b.broker.cluster
    try:
        async with (
            KafkaClient(a.bootstrap, site_local=True) as source,
            KafkaClient(b.bootstrap, site_local=True) as target,
            KafkaClient(a.bootstrap, site_local=True) as watching,
        ):
            access = sync(source, target, link, interval_ms=600_000, watching=watching)
            carrying = asyncio.create_task(access.run())
            for change, condition in (
                (lambda: create_acls(source, [acl("orders")]), lambda image: acl("orders").pattern in image.acls),
                (lambda: delete_acls(source, [exactly(acl("orders"))]), lambda image: not image.acls),
                (lambda: set_quota(a, 1000.0), lambda image: ALICE in image.quotas),
                (lambda: asyncio.to_thread(add_user, a.bootstrap, "alice"), lambda image: "alice" in image.scram_users),
                (lambda: set_token(a, TOKEN.token_id, TOKEN), lambda image: TOKEN.token_id in image.delegation_tokens),
                (lambda: set_token(a, TOKEN.token_id, None), lambda image: not image.delegation_tokens),
            ):
                await change()
                assert await there.wait_for(condition, timeout_ms=20_000)
            await asyncio.wait_for(a.stop(), 20)
            assert not carrying.done(), "a source that does not answer is a problem of the round alone"
            carrying.cancel()
    finally:
        await a.stop()
        await b.stop()


async def test_a_standby_without_an_authorizer_is_reported(zookeeper_server: ZooKeeperProcess, tmp_path: Path) -> None:
    a = await start(zookeeper_server, tmp_path / "a", authorizer_class_name="antipode.AclAuthorizer")
    b = await start(zookeeper_server, tmp_path / "b")
    try:
        async with (
            KafkaClient(a.bootstrap, site_local=True) as source,
            KafkaClient(b.bootstrap, site_local=True) as target,
        ):
            access = sync(source, target, SimpleNamespace(role=LinkRole.MIRRORING, name="a-b", epoch=1))
            await access.round()
            assert "the standby has no authorizer" in access.problems[problem_key(ACLS)]
    finally:
        await a.stop()
        await b.stop()
