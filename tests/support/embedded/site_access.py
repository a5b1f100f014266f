"""ACLs, SCRAM users and quotas of embedded sites, changed and read as operators do it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dr.sites.channels import Channels
from dr.sites.core.fencing import fenced
from dr.sites.site_client import SiteClient
from runtime.clock import SystemClock
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites
from tests.support.pairs.site_comparison import site_client
from tests.support.processes.fork_server import run_antipode
from wire.client.requests.acl_requests import describe_acls
from wire.client.requests.answer_checks import check_outcome, controller_connection
from wire.client.requests.group_config_requests import RESOURCE_GROUP
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

SECURED = [
    part
    for given in ("authorizer.class.name=antipode.AclAuthorizer", "super.users=User:ANONYMOUS")
    for part in ("--broker-config", given)
]
INCREMENTAL_ALTER_CONFIGS = 44
NEVER_BY_ITSELF_MS = 3_600_000
"""An interval of the mirror's rounds: none is due during a test."""


def read_acl(who: str) -> Acl:
    """An ACL by which the user reads the topic."""
    pattern = ResourcePattern(ResourceType.TOPIC, "flights", PatternType.LITERAL)
    return Acl(pattern, AccessEntry(f"User:{who}", "*", Operation.READ, Permission.ALLOW))


def add_user(bootstrap: str, user: str) -> None:
    """Add a SCRAM user to the site of this broker."""
    _users(bootstrap, "add", user, given="secret\n")


def remove_user(bootstrap: str, user: str) -> None:
    """Remove a SCRAM user from the site of this broker."""
    _users(bootstrap, "remove", user)


def users(bootstrap: str) -> set[str]:
    """The SCRAM users of a site."""
    return {one["name"] for one in json.loads(_users(bootstrap, "list"))}


def _users(bootstrap: str, *arguments: str, given: str = "") -> str:
    # not by librdkafka: the active site would answer it for the standby
    done = run_antipode("users", *arguments, "--bootstrap-server", bootstrap, "--output", "json", given=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def command(sites: EmbeddedSites, *arguments: str) -> Any:
    """The JSON of a command that succeeds."""
    done = sites.command(*arguments, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def set_quota(sites: EmbeddedSites, site: str, user: str) -> None:
    """Give a user a quota."""
    given = ("--bootstrap-server", sites.bootstrap(site), "--user", user, "producer_byte_rate=1000")
    done = sites.command("quotas", "set", *given)
    assert done.returncode == 0, done.stdout + done.stderr


def quotas(sites: EmbeddedSites, site: str) -> str:
    """The quotas of a site, as a command lists them."""
    done = sites.command("quotas", "list", "--bootstrap-server", sites.bootstrap(site))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def link_status(sites: EmbeddedSites) -> dict[str, Any]:
    """The link as `antipode links status` has it, with or without problems."""
    (found,) = json.loads(sites.command("links", "status", LINK, "--output", "json").stdout)["links"]
    return dict(found)


def link_of_status(sites: EmbeddedSites) -> dict[str, Any]:
    """The link as `antipode status` has it, with or without problems."""
    (found,) = json.loads(sites.command("status", "--output", "json").stdout)["links"]
    return dict(found)


def is_protected(sites: EmbeddedSites) -> bool:
    """Whether the link's standby protects the active site."""
    return link_status(sites)["protected_since_ms"] is not None


async def set_group_configs(
    sites: EmbeddedSites, site: str, group: str, to_set: Mapping[str, str], *to_remove: str
) -> None:
    """Change configs of a group; BrokerError when the site refuses."""
    changes = [{"name": name, "config_operation": 0, "value": value} for name, value in to_set.items()]
    changes += [{"name": name, "config_operation": 1, "value": None} for name in to_remove]
    resource = {"resource_type": RESOURCE_GROUP, "resource_name": group, "configs": changes}
    async with site_client(sites.bootstrap(site)) as client:
        connection = await controller_connection(client)
        answer = await connection.call(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
        check_outcome(answer.responses[0], connection, INCREMENTAL_ALTER_CONFIGS)


async def acls(sites: EmbeddedSites, site: str) -> set[Acl]:
    """The ACLs of a site."""
    async with site_client(sites.bootstrap(site)) as client:
        return await describe_acls(client, AclFilter())


def with_long_rounds(sites: EmbeddedSites) -> None:
    """Restart the mirrors so that their next rounds over access rules and configs are far away."""
    for name in ("mirror-a-b", "mirror-b-a"):
        (entry,) = sites.environment.processes(process=name)
        mirror = sites.process(name)
        lines = [f"{key}={NEVER_BY_ITSELF_MS}" for key in ("acl.sync.interval.ms", "config.sync.interval.ms")]
        for properties in entry.child().directory.glob("*.properties"):
            properties.write_text("\n".join([properties.read_text(encoding="utf-8"), *lines, ""]), encoding="utf-8")
        mirror.kill()
        sites.restart(mirror)


@asynccontextmanager
async def site_a_fenced(sites: EmbeddedSites) -> AsyncIterator[None]:
    """Site a takes no writes for as long as the block runs, as during a move to b."""
    channels = Channels()
    try:
        agent = SiteClient("a", sites.environment.sites["a"].grpc, channels)
        (status,) = (await agent.links()).links
        await agent.adopt_link(fenced(status.record, now_ms=SystemClock().now_ms()), timeout_ms=60_000)
        yield
    finally:
        await channels.close()
        command(sites, "failovers", "abort", LINK)
