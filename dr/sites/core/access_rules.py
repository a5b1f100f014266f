"""ACLs, SCRAM users and client quotas in a failover: what the target lacks of them, and their part
of the account.

The mirror carries them separately from the records, at an interval of its own. Under the fence the
source's brokers give digests of them, and the mirror reports the digests of what it has carried. A
planned failover is complete only when they are equal. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wire.control.site_pb2 import DescribeGroupsReply
from wire.protocol.ids import UNKNOWN
from wire.rules.access_digests import ACLS, QUOTAS, USERS

PARTS = (ACLS, USERS, QUOTAS)
ALL_PARTS = f"{ACLS}, {USERS} and {QUOTAS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """One site's answer about access rules. `fenced`: the digests of its own, None while it is not
    fenced; `carried`: those of the other site's as the mirror last carried them, None if it carries
    none; `problems`: why the mirror does not carry a part.
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
    """The part of an account that is about access rules. `is_exact`: the target has every change
    that came before the fence; `last_contact_ms`: the age of the last complete round, UNKNOWN
    without one.
    """

    is_exact: bool
    last_contact_ms: int

    @property
    def sentence(self) -> str:
        """Describe the access rules for the operator."""
        if self.is_exact:
            return f"access rules: every change of {ALL_PARTS} before the fence is kept"
        if self.last_contact_ms == UNKNOWN:
            return f"access rules: the age of {ALL_PARTS} is unknown; changes that were not mirrored are lost"
        return (
            f"access rules: the mirror last copied all {ALL_PARTS} {self.last_contact_ms} ms before the account; "
            f"later changes at the old site are lost"
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
        return f"the mirror has not reported yet which {ALL_PARTS} it has carried"
    carried = target.carried
    behind = [part for part in PARTS if part in source.fenced and _differs(source.fenced[part], carried.get(part))]
    if not behind:
        return ""
    named = ", ".join(part + _because(target, part) for part in behind)
    age = "never" if target.synced_ms_ago == UNKNOWN else f"{target.synced_ms_ago} ms ago"
    return f"the last changes of {named} are not here yet; the mirror last began to carry all access rules {age}"


def unable_to_carry(target: AccessRules) -> str:
    """The parts that the mirror fails to carry at all, in a sentence; empty if there are none."""
    named = ", ".join(part + _because(target, part) for part in PARTS if part in (target.problems or {}))
    return f"the mirror cannot carry {named}" if named else ""


def _differs(there: str, here: str | None) -> bool:
    return not there or there != here


def _because(target: AccessRules, part: str) -> str:
    reason = (target.problems or {}).get(part, "")
    return f" ({reason})" if reason else ""


def access_loss(target: AccessRules, *, has_all: bool) -> AccessLoss | None:
    """The account of the access rules; None if the mirror carries none. `has_all`: the target was
    seen to have every rule of the fenced source.
    """
    if not has_all and target.carried is None and target.has_mirror_reported and target.synced_ms_ago == UNKNOWN:
        return None
    return AccessLoss(is_exact=has_all, last_contact_ms=target.synced_ms_ago)
