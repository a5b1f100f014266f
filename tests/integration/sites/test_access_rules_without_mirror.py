"""Access rules that an operator removes at the active site while no mirror runs are removed at the
standby as soon as one runs again, also after the sites have changed places; rules that were made
for the standby alone stay.
"""

from __future__ import annotations

import pytest

from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import create_topic, equal_ends, produce
from tests.support.embedded.site_access import (
    SECURED,
    acls,
    add_user,
    command,
    is_protected,
    quotas,
    read_acl,
    remove_user,
    set_quota,
    users,
)
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import site_client
from wire.client.requests.acl_requests import create_acls, delete_acls, exactly
from wire.rules.acls import Acl

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


async def create(sites: EmbeddedSites, site: str, *wanted: Acl) -> None:
    async with site_client(sites.bootstrap(site)) as client:
        await create_acls(client, list(wanted))


async def delete(sites: EmbeddedSites, site: str, acl: Acl) -> None:
    async with site_client(sites.bootstrap(site)) as client:
        await delete_acls(client, [exactly(acl)])


def reset_quota(sites: EmbeddedSites, site: str, user: str) -> None:
    given = ("--bootstrap-server", sites.bootstrap(site), "--user", user, "producer_byte_rate")
    done = sites.command("quotas", "remove", *given)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_f10_access_rules_removed_without_a_mirror_are_removed_when_one_runs(start_sites: SitesStarter) -> None:
    sites = start_sites(*SECURED)
    await create_topic(sites)
    produce(sites, 10)
    kept, revoked, standbys = read_acl("kept"), read_acl("revoked"), read_acl("standby-only")
    await create(sites, "a", kept, revoked)
    await create(sites, "b", standbys)
    for user in ("kept", "revoked"):
        add_user(sites.bootstrap("a"), user)
        set_quota(sites, "a", user)
    add_user(sites.bootstrap("b"), "standby-only")
    set_quota(sites, "b", "standby-only")

    async def has(site: str, *wanted: Acl) -> None:
        """The site has these ACLs, and users and quotas of the same principals."""
        names = {one.entry.principal.removeprefix("User:") for one in wanted}

        async def is_so() -> bool:
            listed = quotas(sites, site)
            return (
                await acls(sites, site) == set(wanted)
                and users(sites.bootstrap(site)) == names
                and all((name in listed) == (name in names) for name in ("kept", "revoked", "standby-only"))
            )

        await eventually(is_so)

    await has("b", kept, revoked, standbys)
    mirror = sites.process("mirror-a-b")
    mirror.kill()
    await delete(sites, "a", revoked)
    remove_user(sites.bootstrap("a"), "revoked")
    reset_quota(sites, "a", "revoked")
    sites.restart(mirror)
    await has("b", kept, standbys)

    # The promoted site's own rules are the pair's from here on, and removals go the other way.
    await equal_ends(sites)
    eventually_sync(lambda: is_protected(sites))
    back = sites.process("mirror-b-a")
    back.kill()
    patient = ("--unavailability-max-ms", "120000", "--drain-timeout-ms", "120000")
    command(sites, "switchover", LINK, "--to", "b", *patient)
    await delete(sites, "b", kept)
    remove_user(sites.bootstrap("b"), "kept")
    reset_quota(sites, "b", "kept")
    own = read_acl("only-at-a")
    await create(sites, "a", own)
    sites.restart(back)

    async def is_like_b() -> bool:
        return await acls(sites, "a") == {standbys, own} and users(sites.bootstrap("a")) == {"standby-only"}

    await eventually(is_like_b)
    assert "kept" not in quotas(sites, "a")
