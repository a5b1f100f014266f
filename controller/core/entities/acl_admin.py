"""Decides changes of ACLs, which a broker requests or another tool has written to ZooKeeper. A
refused creation or filter does not affect the others of its request.

A pattern's ACLs are one znode, so a decision has one fact for each pattern, even if the request
names the pattern several times. `wire/rules/acls.py` has the rules that need no cluster.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.decisions import AclOutcome
from controller.core.draft import Draft
from controller.core.entities.fence import change_refusal
from controller.core.entity_commands import AclsRead, AlterAcls
from controller.core.state import facts
from wire.rules.access_digests import ACLS
from wire.rules.acls import AccessEntry, Acl, AclFilter, ResourcePattern, refusal_of_acl
from wire.znodes.acl_znodes import encode_acls
from wire.znodes.documents import NODE_BYTES_MAX

_Acls = dict[ResourcePattern, frozenset[AccessEntry]]


def consider(draft: Draft, command: AlterAcls | AclsRead) -> str:
    """Add the facts and outcomes of the command to the draft; returns the reason for the log."""
    if isinstance(command, AclsRead):
        _replace(draft, dict(command.acls), must_store=False)
        return "ACLs were read"
    if refusal := change_refusal(draft.cluster, ACLS, command.claim):
        count = len(command.creations) + len(command.removals)
        draft.acl_reply += [AclOutcome(error=ErrorCode.policy_violation, message=refusal)] * count
        return f"a change of ACLs was refused: {refusal}"
    acls = dict(draft.cluster.acls)
    draft.acl_reply += [_create(acls, acl) for acl in command.creations]
    before = dict(acls)
    draft.acl_reply += [_remove(acls, before, wanted) for wanted in command.removals]
    _replace(draft, acls, must_store=True)
    return f"{len(command.creations)} ACLs and the removal of {len(command.removals)} others were requested"


def _create(acls: _Acls, acl: Acl) -> AclOutcome:
    refusal = refusal_of_acl(acl)
    if refusal is not None:
        return AclOutcome(error=ErrorCode.invalid_request, message=refusal)
    entries = acls.get(acl.pattern, frozenset()) | {acl.entry}
    size = len(encode_acls(entries))
    if size > NODE_BYTES_MAX:
        message = f"the ACLs of {acl.pattern} would take {size} bytes; ZooKeeper keeps at most {NODE_BYTES_MAX}"
        return AclOutcome(error=ErrorCode.policy_violation, message=message)
    acls[acl.pattern] = entries
    return AclOutcome()


def _remove(acls: _Acls, before: _Acls, wanted: AclFilter) -> AclOutcome:
    """Remove what the filter chooses of the ACLs `before` the request: an ACL that several filters
    choose is answered for each, as in Kafka.
    """
    removed: list[Acl] = []
    for pattern in [pattern for pattern in before if wanted.matches_pattern(pattern)]:
        meant = {entry for entry in before[pattern] if wanted.matches_entry(entry)}
        removed += [Acl(pattern, entry) for entry in meant]
        acls[pattern] -= meant
    return AclOutcome(removed=tuple(sorted(removed)))


def _replace(draft: Draft, acls: _Acls, *, must_store: bool) -> None:
    known = dict(draft.cluster.acls)
    for pattern in [*known, *(new for new in acls if new not in known)]:
        entries = acls.get(pattern, frozenset())
        if known.get(pattern, frozenset()) != entries:
            draft.record(facts.AclsReplaced(pattern=pattern, entries=entries, must_store=must_store))
            draft.changed_acls.add(pattern)
