"""Checks whether users who may log in and act at a link's active site could do the same at the
standby: users, ACLs, super users, listeners, certificates. Pure.

A survey comes from one broker of each site and contains no secret
(`broker/site/security_survey.py`). Of passwords of PLAIN, and of the secret key of delegation
tokens, it has one byte of a hash, so that 1 of 256 differences is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dr.links.core.link_preflight import LinkCheck, warned
from dr.links.core.listener_checks import certificate_problems, listener_problems, named
from wire.control.site_pb2 import SecuritySurvey

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
        *_user_problems(active, standby, target, is_made=is_made),
        *_password_problems(active, standby, target),
        *_acl_problems(active, standby, target, carried=not is_made),
        *_token_problems(active, standby, sites),
    ]
    return [
        *warned("principals", problems, otherwise=f"{target} has the users, ACLs and super users of {source}"),
        *warned(
            "listeners",
            listener_problems(active, standby, sites),
            otherwise=f"{target} has the listeners of {source}",
        ),
        *warned(
            "certificates",
            certificate_problems(active, standby, sites, now_ms=now_ms),
            otherwise=f"no certificate ends within 30 days, and {target} has certificates of the same authorities",
        ),
    ]


def _authorizer_problems(active: SecuritySurvey, standby: SecuritySurvey, sites: tuple[str, str]) -> list[str]:
    source, target = sites
    if active.has_authorizer and not standby.has_authorizer:
        return [f"{target} has no authorizer, so ACLs of {source} have no effect there: set authorizer.class.name"]
    if standby.has_authorizer and not active.has_authorizer:
        return [f"{source} has no authorizer and {target} has one, which denies every access that no ACL allows"]
    missing = set(active.super_users) - set(standby.super_users)
    return [f"super.users of {target} lacks {named(missing)}"] if missing else []


def _user_problems(active: SecuritySurvey, standby: SecuritySurvey, target: str, *, is_made: bool) -> list[str]:
    missing = set(active.users) - set(standby.users)
    plain = {user for user in missing if user.startswith(_PLAIN)}
    # A broker without an authorizer shows its users to no mirror.
    can_carry = active.has_authorizer and standby.has_authorizer
    scram = missing - plain if is_made or not can_carry else set()
    problems = []
    if plain:
        problems.append(f"users of PLAIN cannot log in at {target}: {named(u.removeprefix(_PLAIN) for u in plain)}")
    if scram:
        remedy = "" if can_carry else "; without an authorizer at both sites, a mirror carries none: make them there"
        problems.append(f"SCRAM users are missing at {target}: {named(scram)}{remedy}")
    return problems


def _password_problems(active: SecuritySurvey, standby: SecuritySurvey, target: str) -> list[str]:
    there = {found.name: found.plain_passwords for found in standby.listeners}
    problems = []
    for found in active.listeners:
        # a user whom the standby lacks is reported by `_user_problems`
        others: Mapping[str, int] = there.get(found.name, {})
        wrong = {user for user, check in found.plain_passwords.items() if others.get(user, check) != check}
        if wrong:
            problems.append(
                f"users of PLAIN have another password at listener {found.name} of {target}: {named(wrong)}"
            )
    return problems


def _acl_problems(active: SecuritySurvey, standby: SecuritySurvey, target: str, *, carried: bool) -> list[str]:
    if carried or not (active.has_authorizer and standby.has_authorizer):
        return []
    there = {found.principal: set(found.acls) for found in standby.acls}
    missing = {found.principal: len(set(found.acls) - there.get(found.principal, set())) for found in active.acls}
    lacking = [f"{principal} ({count})" for principal, count in missing.items() if count]
    return [f"ACLs are missing at {target}, by principal: {named(lacking)}"] if lacking else []


def _token_problems(active: SecuritySurvey, standby: SecuritySurvey, sites: tuple[str, str]) -> list[str]:
    source, target = sites
    count = active.delegation_tokens
    own, there = (
        found.delegation_token_secret if found.HasField("delegation_token_secret") else None
        for found in (active, standby)
    )
    if own is None and not count:
        return []
    tokens = f"{count} delegation tokens of {source}" if count else f"delegation tokens of {source}"
    if own is None or there is None:
        without = source if own is None else target
        return [f"{tokens} do not hold at {target}: the brokers of {without} have no delegation.token.secret.key"]
    if own != there:
        return [f"{tokens} do not hold at {target}, whose brokers have another delegation.token.secret.key"]
    if not (active.has_authorizer and standby.has_authorizer):
        return [f"{tokens} do not hold at {target}: without an authorizer at both sites, a mirror carries none"]
    return []
