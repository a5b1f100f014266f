"""Access rules (ACLs, SCRAM users, client quotas, delegation tokens) and configs (of topics and
groups) in a failover: what the target lacks of them, and their part of the account.

The mirror carries them separately from the records, at intervals of its own. Under the fence the
source's brokers give digests of them, and the mirror reports the digests of what it has carried. A
planned failover is complete only when they are equal. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wire.control.site_pb2 import DescribeGroupsReply
from wire.protocol.ids import UNKNOWN
from wire.rules.access_digests import ACLS, GROUP_CONFIGS, QUOTAS, TOKENS, TOPIC_CONFIGS, USERS

ACCESS_PARTS = (ACLS, USERS, QUOTAS)
PARTS = (*ACCESS_PARTS, TOKENS, TOPIC_CONFIGS, GROUP_CONFIGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """One site's answer about access rules and configs. `fenced`: the digests of its own, None
    while it is not fenced; `carried`: those of the other site's as the mirror last carried them,
    without the parts that it does not carry, None without a report; `problems`: why the mirror does
    not carry a part.
    """

    fenced: Mapping[str, str] | None = None
    carried: Mapping[str, str] | None = None
    synced_ms_ago: int = UNKNOWN
    """How long ago (ms) the last round of the mirror began that carried all parts."""
    has_mirror_reported: bool = True
    """False if the site's brokers have no report of the mirror, so that `carried` is not known."""
    problems: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLoss:
    """The part of an account that is about access rules and configs. `is_exact`: the target has
    every change that came before the fence; `last_contact_ms`: the age of the last complete round,
    UNKNOWN without one; `parts`: the parts that the mirror carried.
    """

    is_exact: bool
    last_contact_ms: int
    parts: tuple[str, ...] = ACCESS_PARTS

    @property
    def sentence(self) -> str:
        """Describe them for the operator."""
        parts = _and(self.parts)
        if self.is_exact:
            return f"access rules and configs: every change of {parts} before the fence is kept"
        if self.last_contact_ms == UNKNOWN:
            return f"access rules and configs: the age of {parts} is unknown; changes that were not mirrored are lost"
        return (
            f"access rules and configs: the mirror last copied all {parts} {self.last_contact_ms} ms before the "
            f"account; later changes at the old site are lost"
        )


def access_rules(reply: DescribeGroupsReply) -> AccessRules:
    """Convert the answer of a site's agent."""
    is_synced = reply.HasField("access_synced_ms_ago")
    return AccessRules(
        fenced=dict(reply.fenced_access.by_part) if reply.HasField("fenced_access") else None,
        carried=dict(reply.carried_access.by_part) if reply.HasField("carried_access") else None,
        synced_ms_ago=reply.access_synced_ms_ago if is_synced else UNKNOWN,
        has_mirror_reported=reply.has_mirror_reported,
        problems={
            part: reason
            for daemon in reply.failing
            for part in PARTS
            if (reason := daemon.problems.get(problem_key(part)))
        },
    )


def problem_key(part: str) -> str:
    """The name under which a mirror reports that it does not carry the part; no group has it."""
    return f"({part})"


def access_lacking(source: AccessRules, target: AccessRules) -> str:
    """The parts that the target may lack of the fenced source's, in a sentence; empty if it has
    all, or if the link's mirror carries none.
    """
    if source.fenced is None or (target.carried is None and target.has_mirror_reported):
        return ""
    if target.carried is None:
        return f"the mirror has not reported yet which {_and(PARTS)} it has carried"
    carried = target.carried
    both = [part for part in PARTS if part in source.fenced and part in carried]
    behind = [part for part in both if not source.fenced[part] or source.fenced[part] != carried[part]]
    if not behind:
        return ""
    named = ", ".join(part + _because(target, part) for part in behind)
    age = "never" if target.synced_ms_ago == UNKNOWN else f"{target.synced_ms_ago} ms ago"
    return f"the last changes of {named} are not here yet; the mirror last began to carry all of them {age}"


def unable_to_carry(target: AccessRules) -> str:
    """The parts that the mirror fails to carry at all, in a sentence; empty if there are none."""
    named = ", ".join(part + _because(target, part) for part in PARTS if part in (target.problems or {}))
    return f"the mirror cannot carry {named}" if named else ""


def _and(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _because(target: AccessRules, part: str) -> str:
    reason = (target.problems or {}).get(part, "")
    return f" ({reason})" if reason else ""


def access_loss(target: AccessRules, *, has_all: bool) -> AccessLoss | None:
    """The account of access rules and configs; None if the mirror carries none. `has_all`: the
    target was seen to have all of the fenced source's.
    """
    if not has_all and target.carried is None and target.has_mirror_reported and target.synced_ms_ago == UNKNOWN:
        return None
    parts = tuple(part for part in PARTS if target.carried is None or part in target.carried)
    return AccessLoss(is_exact=has_all, last_contact_ms=target.synced_ms_ago, parts=parts) if parts else None
