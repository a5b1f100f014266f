"""Compares the listeners of a link's sites: finds clients of the active site that the standby would
refuse or identify as another principal, and certificates that are about to expire. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from runtime.times import iso_time
from wire.control.site_pb2 import ListenerSurvey, SecuritySurvey
from wire.tls.core.validity import WARNED_BEFORE_MS

NAMED_MAX: Final = 5
_MAY_SHOW: Final = ("requested", "required")
_MUST_SHOW: Final = "required"


def named(names: Iterable[str]) -> str:
    """The first names in alphabetical order, and how many more there are."""
    found = sorted(names)
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more


def listener_problems(active: SecuritySurvey, standby: SecuritySurvey, sites: tuple[str, str]) -> list[str]:
    """The reasons why clients of a listener of the active site could not use the standby."""
    there = {listener.name: listener for listener in standby.listeners}
    problems: list[str] = []
    for listener in active.listeners:
        if listener.name in there:
            problems += _differences(listener, there[listener.name], sites)
        else:
            problems.append(f"{sites[1]} has no listener {listener.name}")
    return problems


def _differences(here: ListenerSurvey, there: ListenerSurvey, sites: tuple[str, str]) -> Iterator[str]:
    source, target = sites
    listener = f"listener {here.name} of {target}"
    if here.protocol != there.protocol:
        yield f"{listener} is {there.protocol}, not {here.protocol}"
    mechanisms = set(here.mechanisms) - set(there.mechanisms)
    if mechanisms:
        yield f"{listener} does not offer {named(mechanisms)}"
    # a listener without versions is that of an earlier release, or has no TLS
    versions = set(here.tls_versions) - set(there.tls_versions) if there.tls_versions else set()
    if versions:
        yield f"{listener} does not accept {named(versions)} (ssl.enabled.protocols)"
    yield from _of_client_certificates(here, there, sites)
    if {"OAUTHBEARER"} <= set(here.mechanisms) & set(there.mechanisms):
        for key in sorted({*here.token_rules, *there.token_rules}):
            ours, theirs = here.token_rules.get(key, ""), there.token_rules.get(key, "")
            if ours != theirs:
                yield f"{listener} has {key}={theirs}, and {source} has {key}={ours}: tokens may be refused there"


def _of_client_certificates(here: ListenerSurvey, there: ListenerSurvey, sites: tuple[str, str]) -> Iterator[str]:
    source, target = sites
    listener = f"listener {here.name} of {target}"
    if there.client_auth == _MUST_SHOW and here.client_auth != _MUST_SHOW:
        yield f"{listener} refuses clients without a certificate (ssl.client.auth=required), and {source} accepts them"
    if here.client_auth not in _MAY_SHOW:
        return
    unknown = set(here.authorities) - set(there.authorities)
    if unknown and there.client_auth in _MAY_SHOW:
        known = {digest: authority.subject for digest, authority in here.authorities_found.items()}
        names = named({known.get(digest, f"an authority (SHA-256 {digest})") for digest in unknown})
        yield f"{listener} does not trust {names}, whose clients may connect to {source}"
    if here.protocol != "SSL" or there.protocol != "SSL":
        return
    if there.client_auth not in _MAY_SHOW:
        yield f"{listener} asks no client for a certificate (ssl.client.auth), so that all are User:ANONYMOUS there"
    elif here.mapping_rules and there.mapping_rules and here.mapping_rules != there.mapping_rules:
        yield (
            f"{listener} maps certificates to other principals: ssl.principal.mapping.rules is "
            f"{there.mapping_rules!r} there and {here.mapping_rules!r} at {source}"
        )


def certificate_problems(
    active: SecuritySurvey, standby: SecuritySurvey, sites: tuple[str, str], *, now_ms: int
) -> list[str]:
    """Certificates and authorities of both sites that end, and certificates that clients of the
    active site may refuse at the standby.
    """
    source, target = sites
    problems = [
        problem for found, name in ((standby, target), (active, source)) for problem in _ending(found, name, now_ms)
    ]
    there = {listener.name: listener for listener in standby.listeners}
    for here in active.listeners:
        found = there.get(here.name)
        if found is None:
            continue
        ours, theirs = here.certificate_issuer, found.certificate_issuer
        if ours and theirs and ours != theirs:
            problems.append(
                f"the certificate of listener {here.name} of {target} is issued by {theirs}, that of {source} by {ours}: "
                "clients have to trust both"
            )
        if found.unnamed_host and not here.unnamed_host:
            problems.append(
                f"the certificate of listener {here.name} of {target} does not name {found.unnamed_host}, "
                "the host that clients connect to"
            )
    return problems


def _ending(survey: SecuritySurvey, site: str, now_ms: int) -> Iterator[str]:
    ends = {f"the control plane's certificate of a broker of {site}": survey.control_certificate_ends_at_ms}
    for listener in survey.listeners:
        ends[f"the certificate of listener {listener.name} of {site}"] = listener.certificate_ends_at_ms
        if listener.client_auth in _MAY_SHOW:
            for authority in listener.authorities_found.values():
                ends[f"{authority.subject}, trusted by listener {listener.name} of {site},"] = authority.ends_at_ms
    for what, ends_at_ms in ends.items():
        if ends_at_ms and ends_at_ms < now_ms + WARNED_BEFORE_MS:
            yield f"{what} {'has ended' if ends_at_ms < now_ms else 'ends'} at {iso_time(ends_at_ms)}"
