"""Checks whether users who may log in and act at a link's active site could do the same at the
standby: users, ACLs, super users, listeners, certificates. Pure.

A survey comes from one broker of each site and contains no secret
(`broker/site/security_survey.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dr.links.core.link_preflight import LinkCheck, Outcome
from runtime.times import iso_time
from wire.control.site_pb2 import ListenerSurvey, SecuritySurvey

NAMED_MAX: Final = 5
CERTIFICATE_WARNING_MS: Final = 30 * 24 * 3_600_000
"""A certificate that ends within this time is a warning."""
_PLAIN: Final = "PLAIN "


def security_checks(
    active: SecuritySurvey, standby: SecuritySurvey, *, sites: tuple[str, str], now_ms: int, is_made: bool
) -> list[LinkCheck]:
    """`sites` are the names of the active site and the standby. Without `is_made` no mirror carries
    ACLs and SCRAM users yet, so that missing ones are not a problem.
    """
    source, target = sites
    problems = [
        *_authorizer_problems(active, standby, sites),
        *_user_problems(active, standby, target, carried=not is_made),
        *_acl_problems(active, standby, target, carried=not is_made),
    ]
    if active.delegation_tokens:
        problems.append(
            f"{active.delegation_tokens} delegation tokens exist only at {source}: create new ones after a failover"
        )
    certificates = [
        problem for found, name in ((standby, target), (active, source)) for problem in _ending(found, name, now_ms)
    ]
    return [
        *_warnings("principals", problems, otherwise=f"{target} has the users, ACLs and super users of {source}"),
        *_warnings(
            "listeners",
            _listener_problems(active, standby, target),
            otherwise=f"{target} has the listeners of {source}",
        ),
        *_warnings("certificates", certificates, otherwise="no certificate of a listener ends within 30 days"),
    ]


def _warnings(check: str, problems: Sequence[str], *, otherwise: str) -> list[LinkCheck]:
    if not problems:
        return [LinkCheck(check=check, outcome=Outcome.OK, detail=otherwise)]
    return [LinkCheck(check=check, outcome=Outcome.WARNING, detail=problem) for problem in problems]


def _named(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more


def _authorizer_problems(active: SecuritySurvey, standby: SecuritySurvey, sites: tuple[str, str]) -> list[str]:
    source, target = sites
    if active.has_authorizer and not standby.has_authorizer:
        return [f"{target} has no authorizer, so ACLs of {source} have no effect there: set authorizer.class.name"]
    if standby.has_authorizer and not active.has_authorizer:
        return [f"{source} has no authorizer and {target} has one, which denies every access that no ACL allows"]
    missing = set(active.super_users) - set(standby.super_users)
    return [f"super.users of {target} lacks {_named(missing)}"] if missing else []


def _user_problems(active: SecuritySurvey, standby: SecuritySurvey, target: str, *, carried: bool) -> list[str]:
    missing = set(active.users) - set(standby.users)
    plain = {user for user in missing if user.startswith(_PLAIN)}
    scram = set() if carried else missing - plain
    problems = []
    if plain:
        problems.append(f"users of PLAIN cannot log in at {target}: {_named(u.removeprefix(_PLAIN) for u in plain)}")
    if scram:
        problems.append(f"SCRAM users are missing at {target}: {_named(scram)}")
    return problems


def _acl_problems(active: SecuritySurvey, standby: SecuritySurvey, target: str, *, carried: bool) -> list[str]:
    if carried or not (active.has_authorizer and standby.has_authorizer):
        return []
    there = {found.principal: set(found.acls) for found in standby.acls}
    missing = {found.principal: len(set(found.acls) - there.get(found.principal, set())) for found in active.acls}
    lacking = [f"{principal} ({count})" for principal, count in missing.items() if count]
    return [f"ACLs are missing at {target}, by principal: {_named(lacking)}"] if lacking else []


def _listener_problems(active: SecuritySurvey, standby: SecuritySurvey, target: str) -> list[str]:
    there = {listener.name: listener for listener in standby.listeners}
    return [
        problem
        for listener in active.listeners
        for problem in (
            _differences(listener, there[listener.name], target)
            if listener.name in there
            else [f"{target} has no listener {listener.name}"]
        )
    ]


def _differences(here: ListenerSurvey, there: ListenerSurvey, target: str) -> list[str]:
    problems = []
    if here.protocol != there.protocol:
        problems.append(f"listener {here.name} of {target} is {there.protocol}, not {here.protocol}")
    mechanisms = set(here.mechanisms) - set(there.mechanisms)
    if mechanisms:
        problems.append(f"listener {here.name} of {target} does not offer {_named(mechanisms)}")
    unknown = set(here.authorities) - set(there.authorities)
    if unknown and here.client_auth in ("requested", "required"):
        count = f"{len(unknown)} of the authorities" if len(unknown) > 1 else "an authority"
        problems.append(
            f"listener {here.name} of {target} does not trust {count} whose clients may connect to the active site"
        )
    return problems


def _ending(survey: SecuritySurvey, site: str, now_ms: int) -> list[str]:
    return [
        f"the certificate of listener {listener.name} of {site} "
        f"{'has ended' if listener.certificate_ends_at_ms < now_ms else 'ends'} at {iso_time(listener.certificate_ends_at_ms)}"
        for listener in survey.listeners
        if listener.certificate_ends_at_ms and listener.certificate_ends_at_ms < now_ms + CERTIFICATE_WARNING_MS
    ]
