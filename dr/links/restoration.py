"""Stores a link again at a site that has lost its ZooKeeper data, for `antipode links restore`.

The site gets the record of the link's other site, which must be the active one: the restored site
is a standby, and the mirror copies everything to it. Agents do not do this by themselves, because a
link that an operator has deleted at one site would come back.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.links.administration import CheckedLink, describe_link, governing_record, stored_link
from dr.links.core.link_preflight import judged, refusals
from dr.links.link_preflight import ask_mirror, preflight
from dr.sites.core.link_checks import pair_problems
from dr.sites.site_client import SiteClient
from runtime.clock import Clock, SystemClock
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import other_site


async def check_restoration(
    name: str, clients: Mapping[str, SiteClient], *, at: str, mirror: str = "", clock: Clock | None = None
) -> CheckedLink:
    """Check whether the link can be stored again at the site `at`; nothing is changed. `mirror` is
    the MirrorAdmin address of the daemon that writes to this site, "" if unknown. Raises
    OperationalFailure.
    """
    now_ms = (clock or SystemClock()).now_ms()
    record = governing_record(await describe_link(name, [client for site, client in clients.items() if site != at]))
    if at not in (record.source_site, record.target_site):
        raise OperationalFailure(
            f"link {name} joins {record.source_site} and {record.target_site}: site {at} is neither of them"
        )
    kept, lost = clients.get(other_site(record, at)), clients[at]
    if kept is None:
        raise OperationalFailure(
            f"no gRPC address is known of site {other_site(record, at)}: give --site name=host:port"
        )
    checks = judged("role", _role_problems(record, at=at), otherwise=f"{kept.name} is active in epoch {record.epoch}")
    if refusals(checks):
        return CheckedLink(record=record, checks=checks)
    stored = await stored_link(name, lost)
    # A repeated command finds what the call stored whose answer was lost.
    problems: list[str] = []
    if stored is not None and stored != record:
        problems.append(f"{at} has the link, in epoch {stored.epoch} with {stored.active_site} active")
    checks += judged("link", problems, otherwise=f"{at} has no other link of this name")
    if refusals(checks):
        return CheckedLink(record=record, checks=checks)
    active_view, lost_view = await kept.view(asking_site=at), await lost.view(asking_site=kept.name)
    problems = pair_problems(active_view, lost_view, source_site=kept.name, target_site=at)
    checks += judged("sites", problems, otherwise="they share the cluster id and no node ids")
    is_made = stored is not None
    live = len(lost_view.brokers)
    checks += await preflight(record, source=kept, target=lost, live=live, now_ms=now_ms, is_made=is_made)
    checks.append(await ask_mirror(name, mirror))
    return CheckedLink(record=record, checks=checks)


def _role_problems(record: LinkRecord, *, at: str) -> list[str]:
    if record.active_site != at:
        return []
    other = other_site(record, at)
    command = f"antipode failover {record.name} --to {other}"
    return [f"{at} is the active site, and would be active without records: promote {other} first ({command})"]


async def restore_link(checked: CheckedLink, lost: SiteClient) -> LinkRecord:
    """Store the checked record at the site, which then is a standby. A repeated call changes
    nothing. Raises OperationalFailure with all problems.
    """
    if checked.problems:
        raise OperationalFailure(f"link {checked.record.name} cannot be restored: {'; '.join(checked.problems)}")
    return await lost.create_link(checked.record)
