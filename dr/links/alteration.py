"""Changes the policies of a running link, for `antipode links alter`.

Each change but one is stored at the active site first, where it is in force. The lease is removed
at the standby first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dr.links.administration import describe_link, governing_record
from dr.sites.core.link_checks import arbiter_problems
from dr.sites.site_client import STORE_TIMEOUT_MS, LinkChanges, SiteClient
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import other_site

REMOVALS_MAX = 3
"""Number of attempts to remove a lease while other changes of the link are stored."""
STANDBY_IS_DOWN = "shut its brokers down and give --standby-is-down"


class AlteredLink(Struct, frozen=True, kw_only=True):
    """The record at the active site after the change (or the planned one), and the reason why the
    other site does not have it yet.
    """

    record: LinkRecord
    problem: str = ""


async def alter_link(
    name: str,
    clients: Sequence[SiteClient],
    changes: LinkChanges,
    *,
    is_dry_run: bool = False,
    is_standby_down: bool = False,
) -> AlteredLink:
    """Change a running link's policies: they are stored and applied at the active site first, then
    sent to the other one. Only the removal of a lease is stored at the standby first.

    A passive site that does not answer copies them from its peer when it returns; for an active
    one, OperationalFailure is raised. After an interruption, the same call does the rest.
    `is_standby_down`: a lease may be removed although the standby does not answer.
    """
    governing = governing_record(await describe_link(name, clients))
    by_name = {client.name: client for client in clients}
    active = by_name.get(governing.active_site)
    if active is None:
        raise OperationalFailure(f"no agent address is known of {governing.active_site}, where link {name} is active")
    if changes.lease_ms and not governing.lease_ms:
        _refuse_change(name, arbiter_problems(await _arbiters(governing, clients)))
    other = by_name.get(other_site(governing, active.name))
    removes_lease = changes.lease_ms == 0 and governing.lease_ms > 0
    if removes_lease and not is_standby_down:
        return AlteredLink(
            record=await _remove_lease(name, changes, active=active, standby=other, is_dry_run=is_dry_run)
        )
    record = await active.alter_link(name, changes, is_dry_run=is_dry_run, timeout_ms=STORE_TIMEOUT_MS)
    if is_dry_run or other is None:
        return AlteredLink(record=record)
    try:
        await other.adopt_link(record, timeout_ms=STORE_TIMEOUT_MS)
    except OperationalFailure as failure:
        return AlteredLink(record=record, problem=f"{failure}; it reads the change from {active.name} when it is back")
    return AlteredLink(record=record)


async def _remove_lease(
    name: str, changes: LinkChanges, *, active: SiteClient, standby: SiteClient | None, is_dry_run: bool
) -> LinkRecord:
    """Store the change at the standby first: as long as it knows the lease, it may be promoted when
    the lease of a silent site has ended, while the active site takes writes without a lease.
    """
    for _ in range(REMOVALS_MAX):
        record = await active.alter_link(name, changes, is_dry_run=True, timeout_ms=STORE_TIMEOUT_MS)
        if standby is None:
            unknown = f"no agent address of {other_site(record, active.name)} is known"
            raise OperationalFailure(f"link {name} cannot be changed so: {unknown}: {STANDBY_IS_DOWN}")
        try:
            if is_dry_run:
                await standby.describe_link(name, is_brief=True)
                return record
            stored = (await standby.adopt_link(record, timeout_ms=STORE_TIMEOUT_MS)).record
        except OperationalFailure as failure:
            problem = f"{failure}; {standby.name} may be promoted under the lease that it knows: {STANDBY_IS_DOWN}"
            raise OperationalFailure(f"link {name} cannot be changed so: {problem}") from failure
        if stored.epoch != record.epoch:
            break
        if stored == record and (await active.adopt_link(record, timeout_ms=STORE_TIMEOUT_MS)).record == record:
            return record
        # The agents or another operator have changed a policy meanwhile: the next revision has both
        # changes.
    raise OperationalFailure(f"link {name} is being changed by another run: look at it, then repeat the command")


async def _arbiters(record: LinkRecord, clients: Sequence[SiteClient]) -> dict[str, str]:
    """Return the identity of the arbiter that each site of the link reaches; empty for a site that
    reaches none.
    """
    found = dict.fromkeys((record.source_site, record.target_site), "")
    for client in clients:
        survey = await client.survey_link(record)
        if client.name in found and survey is not None:
            found[client.name] = survey.arbiter_id
    return found


def _refuse_change(name: str, problems: Sequence[str]) -> None:
    if problems:
        raise OperationalFailure(f"link {name} cannot be changed so: {'; '.join(problems)}")
