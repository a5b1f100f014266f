"""Decides changes of SCRAM credentials. A refused user does not affect the others of its request.

Brokers check the credentials themselves before they ask
(`broker/handlers/security/alter_user_scram_credentials.py`).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.decisions import QuotaOutcome
from controller.core.draft import Draft
from controller.core.entities.fence import change_refusal
from controller.core.entity_commands import AlterScramUsers, ScramUsersRead
from controller.core.state import facts
from wire.rules.access_digests import USERS


def consider(draft: Draft, command: AlterScramUsers | ScramUsersRead) -> str:
    """Add the facts and outcomes of the command to the draft; returns the reason for the log."""
    if isinstance(command, ScramUsersRead):
        for user in [
            *draft.cluster.scram_users,
            *(new for new in command.users if new not in draft.cluster.scram_users),
        ]:
            _replace(draft, user, dict(command.users.get(user, {})), must_store=False)
        return "users were read"
    if refusal := change_refusal(draft.cluster, USERS, command.claim):
        outcome = QuotaOutcome(error=ErrorCode.policy_violation, message=refusal)
        draft.quota_reply += [outcome] * len(command.changes)
        return f"a change of SCRAM users was refused: {refusal}"
    for change in command.changes:
        known = draft.cluster.scram_users.get(change.name, {})
        if missing := [mechanism for mechanism in change.remove if mechanism not in known]:
            message = f"user {change.name} has no credential of {' and '.join(missing)} to delete"
            draft.quota_reply.append(QuotaOutcome(error=ErrorCode.resource_not_found, message=message))
            continue
        draft.quota_reply.append(QuotaOutcome())
        left = {mechanism: text for mechanism, text in known.items() if mechanism not in change.remove}
        _replace(draft, change.name, {**left, **change.set_credentials}, must_store=True)
    return f"credentials of {len(command.changes)} users were requested"


def _replace(draft: Draft, user: str, credentials: dict[str, str], *, must_store: bool) -> None:
    if draft.cluster.scram_users.get(user, {}) != credentials:
        draft.record(facts.ScramUserReplaced(user=user, credentials=credentials, must_store=must_store))
        draft.changed_scram_users.add(user)
