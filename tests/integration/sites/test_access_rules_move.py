"""F10: ACLs, SCRAM users and quotas that an operator changes right before the sites change places
are at the promoted site, and cannot change while the source is fenced.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from dr.sites.channels import Channels
from dr.sites.core.fencing import fenced
from dr.sites.site_client import SiteClient
from runtime.clock import SystemClock
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import create_topic, equal_ends, produce
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import site_client
from wire.client.client_errors import BrokerError
from wire.client.requests.acl_requests import create_acls, delete_acls, describe_acls, exactly
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

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SECURED = [
    part
    for given in ("authorizer.class.name=antipode.AclAuthorizer", "super.users=User:ANONYMOUS")
    for part in ("--broker-config", given)
]
NEVER_BY_ITSELF_MS = 3_600_000
"""The interval of the mirror's rounds over access rules: none is due during the test."""


def read_acl(who: str) -> Acl:
    pattern = ResourcePattern(ResourceType.TOPIC, "flights", PatternType.LITERAL)
    return Acl(pattern, AccessEntry(f"User:{who}", "*", Operation.READ, Permission.ALLOW))


def add_user(bootstrap: str, user: str) -> None:
    change: Any = UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for outcome in admin.alter_user_scram_credentials([change]).values():
        outcome.result(120)


def users(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described: Any = admin.describe_user_scram_credentials()
    return set(described.result(120))


def command(sites: EmbeddedSites, *arguments: str) -> Any:
    done = sites.command(*arguments, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def set_quota(sites: EmbeddedSites, site: str, user: str) -> None:
    given = ("--bootstrap-server", sites.bootstrap(site), "--user", user, "producer_byte_rate=1000")
    done = sites.command("quotas", "set", *given)
    assert done.returncode == 0, done.stdout + done.stderr


def quotas(sites: EmbeddedSites, site: str) -> str:
    done = sites.command("quotas", "list", "--bootstrap-server", sites.bootstrap(site))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_long_rounds(sites: EmbeddedSites) -> None:
    """Restart the mirrors so that their next round over access rules is far away."""
    for name in ("mirror-a-b", "mirror-b-a"):
        (entry,) = sites.environment.processes(process=name)
        mirror = sites.process(name)
        for properties in entry.child().directory.glob("*.properties"):
            text = properties.read_text(encoding="utf-8")
            properties.write_text(f"{text}\nacl.sync.interval.ms={NEVER_BY_ITSELF_MS}\n", encoding="utf-8")
        mirror.kill()
        sites.restart(mirror)


def is_protected(sites: EmbeddedSites) -> bool:
    (link,) = command(sites, "links", "status", LINK)["links"]
    return link["protected_since_ms"] is not None


async def acls(sites: EmbeddedSites, site: str) -> set[Acl]:
    async with site_client(sites.bootstrap(site)) as client:
        return await describe_acls(client, AclFilter())


async def refusal_under_a_fence(sites: EmbeddedSites) -> str:
    """The refusal of a change of ACLs by site a while it is fenced. Afterwards site a takes writes
    again.
    """
    channels = Channels()
    try:
        agent = SiteClient("a", sites.environment.sites["a"].grpc, channels)
        (status,) = (await agent.links()).links
        await agent.adopt_link(fenced(status.record, now_ms=SystemClock().now_ms()), timeout_ms=60_000)
    finally:
        await channels.close()
    with pytest.raises(BrokerError) as refused:
        async with site_client(sites.bootstrap("a")) as client:
            await create_acls(client, [read_acl("late")])
    command(sites, "failovers", "abort", LINK)
    return str(refused.value)


async def test_f10_access_rules_follow_a_move_that_comes_right_after_their_change(start_sites: SitesStarter) -> None:
    sites = start_sites(*SECURED)
    await create_topic(sites)
    produce(sites, 10)
    async with site_client(sites.bootstrap("a")) as client:
        await create_acls(client, [read_acl("early"), read_acl("revoked")])
    with_long_rounds(sites)

    async def has_first_round() -> bool:
        return await acls(sites, "b") == {read_acl("early"), read_acl("revoked")}

    await eventually(has_first_round)
    await equal_ends(sites)
    eventually_sync(lambda: is_protected(sites))

    async with site_client(sites.bootstrap("a")) as client:
        await create_acls(client, [read_acl("alice")])
        await delete_acls(client, [exactly(read_acl("revoked"))])
    add_user(sites.bootstrap("a"), "alice")
    set_quota(sites, "a", "alice")
    patient = ("--unavailability-max-ms", "120000", "--drain-timeout-ms", "120000")
    account = command(sites, "switchover", LINK, "--to", "b", *patient)["account"]
    assert account["access"]["is_exact"], account
    assert await acls(sites, "b") == {read_acl("early"), read_acl("alice")}
    assert "alice" in users(sites.bootstrap("b"))
    assert "alice" in quotas(sites, "b")

    eventually_sync(lambda: is_protected(sites))
    command(sites, "switchover", LINK, "--to", "a", *patient)
    assert "link 'a-b' is fenced for a failover to site 'b'" in await refusal_under_a_fence(sites)
    async with site_client(sites.bootstrap("a")) as client:
        await create_acls(client, [read_acl("late")])

    began = time.monotonic()
    for name in ("broker-1", "zookeeper-a"):
        sites.process(name).kill()
    lost = command(sites, "failover", LINK, "--to", "b", "--old-site-is-down")["account"]["access"]
    assert not lost["is_exact"]
    assert 0 < lost["last_contact_ms"] < 1_000 * (time.monotonic() - began) + NEVER_BY_ITSELF_MS
    assert "later changes at the old site are lost" in lost["sentence"]
    assert read_acl("late") not in await acls(sites, "b")
