"""Decides changes of client quotas. A refused entity does not affect the others of its request.

`wire/rules/client_quotas.py` has the rules that need no cluster.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.decisions import QuotaOutcome
from controller.core.draft import Draft
from controller.core.entities.fence import change_refusal
from controller.core.entity_commands import AlterClientQuotas, ClientQuotasRead, QuotaChange
from controller.core.state import facts
from wire.rules.access_digests import QUOTAS
from wire.rules.client_quotas import QuotaEntity, QuotaValues, refusal_of_entity, refusal_of_value


def consider(draft: Draft, command: AlterClientQuotas | ClientQuotasRead) -> str:
    """Add the facts and outcomes of the command to the draft; returns the reason for the log."""
    if isinstance(command, ClientQuotasRead):
        _apply_quotas(draft, command)
        return "quotas were read"
    _alter_client_quotas(draft, command)
    return f"quotas of {len(command.changes)} entities were requested"


def _alter_client_quotas(draft: Draft, command: AlterClientQuotas) -> None:
    """Replace the quotas of each entity that passes the checks."""
    if refused := change_refusal(draft.cluster, QUOTAS, command.claim):
        outcome = QuotaOutcome(error=ErrorCode.policy_violation, message=refused)
        draft.quota_reply += [outcome] * len(command.changes)
        return
    entities = [change.entity for change in command.changes]
    replaced: dict[QuotaEntity, QuotaValues] = {}
    for change in command.changes:
        refusal = _refusal(change)
        if entities.count(change.entity) > 1:
            refusal = "The same client quota entity is named twice"
        if refusal is not None:
            draft.quota_reply.append(QuotaOutcome(error=ErrorCode.invalid_request, message=refusal))
            continue
        draft.quota_reply.append(QuotaOutcome())
        known = draft.cluster.quotas.get(change.entity, {})
        values = {key: value for key, value in {**known, **change.set_values}.items() if key not in change.remove}
        if values != known and not command.is_validate_only:
            replaced[change.entity] = values
    # clients of a user first: their nodes are below the user's, which is then not deleted
    for entity in sorted(replaced, key=len, reverse=True):
        draft.record(facts.ClientQuotaReplaced(entity=entity, values=replaced[entity]))
        draft.changed_quotas.add(entity)


def _refusal(change: QuotaChange) -> str | None:
    refusal = refusal_of_entity(change.entity)
    if refusal is not None:
        return refusal
    # a quota that is removed may have any name, as in Kafka
    refusals = (refusal_of_value(change.entity, key, value) for key, value in change.set_values.items())
    return next((refusal for refusal in refusals if refusal is not None), None)


def _apply_quotas(draft: Draft, command: ClientQuotasRead) -> None:
    """Apply quotas that another process has written."""
    for entity in [*draft.cluster.quotas, *(new for new in command.quotas if new not in draft.cluster.quotas)]:
        values = command.quotas.get(entity, {})
        if draft.cluster.quotas.get(entity, {}) != values:
            draft.record(facts.ClientQuotaReplaced(entity=entity, values=values, must_store=False))
            draft.changed_quotas.add(entity)
