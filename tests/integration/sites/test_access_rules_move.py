"""F10: ACLs, SCRAM users and quotas that an operator changes right before the sites change places
are at the promoted site, and cannot change while the source is fenced.
"""

from __future__ import annotations

import time

import pytest

from tests.support.embedded.embedded_sites import LINK, SitesStarter
from tests.support.embedded.sample_topic import create_topic, equal_ends, produce
from tests.support.embedded.site_access import (
    NEVER_BY_ITSELF_MS,
    SECURED,
    acls,
    add_user,
    command,
    is_protected,
    quotas,
    read_acl,
    set_quota,
    site_a_fenced,
    users,
    with_long_rounds,
)
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import site_client
from wire.client.client_errors import BrokerError
from wire.client.requests.acl_requests import create_acls, delete_acls, exactly

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


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
    with pytest.raises(BrokerError, match="link 'a-b' is fenced for a failover to site 'b'"):
        async with site_a_fenced(sites), site_client(sites.bootstrap("a")) as client:
            await create_acls(client, [read_acl("late")])
    began = time.monotonic()
    # the mirror has a round when it begins to mirror again, which may be as late as this change
    mirror = sites.process("mirror-a-b")
    mirror.pause()
    async with site_client(sites.bootstrap("a")) as client:
        await create_acls(client, [read_acl("late")])
    for name in ("broker-1", "zookeeper-a"):
        sites.process(name).kill()
    mirror.resume()
    lost = command(sites, "failover", LINK, "--to", "b", "--old-site-is-down")["account"]["access"]
    assert not lost["is_exact"]
    assert 0 < lost["last_contact_ms"] < 1_000 * (time.monotonic() - began) + NEVER_BY_ITSELF_MS
    assert "later changes at the old site are lost" in lost["sentence"]
    assert read_acl("late") not in await acls(sites, "b")
