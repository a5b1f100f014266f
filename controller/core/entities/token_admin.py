"""Decides changes of delegation tokens, which a broker requests or another tool has written to
ZooKeeper. A refused token does not affect the others of its request. Brokers check the rights to a
token (`broker/authentication/core/token_rules.py`). The controller refuses to renew a token that
was removed meanwhile, so that an expired token never returns. Tokens that have expired are removed
under a fence, too: no login by them succeeds at either site.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.decisions import QuotaOutcome
from controller.core.draft import Draft
from controller.core.entities.fence import change_refusal
from controller.core.entity_commands import AlterDelegationTokens, DelegationTokensRead, RemoveExpiredTokens
from controller.core.state import facts
from wire.rules.access_digests import TOKENS
from wire.rules.delegation_tokens import DelegationToken


def consider(draft: Draft, command: AlterDelegationTokens | DelegationTokensRead | RemoveExpiredTokens) -> str:
    """Add the facts and outcomes of the command to the draft; returns the reason for the log."""
    known = draft.cluster.delegation_tokens
    match command:
        case DelegationTokensRead():
            for token_id in [*known, *(new for new in command.tokens if new not in known)]:
                _replace(draft, token_id, command.tokens.get(token_id), must_store=False)
            return "delegation tokens were read"
        case RemoveExpiredTokens():
            expired = [token_id for token_id, token in known.items() if token.is_expired(command.now_ms)]
            for token_id in expired:
                _replace(draft, token_id, None, must_store=True)
            return f"{len(expired)} delegation tokens have expired"
        case AlterDelegationTokens():
            if refusal := change_refusal(draft.cluster, TOKENS, command.claim):
                outcome = QuotaOutcome(error=ErrorCode.policy_violation, message=refusal)
                draft.quota_reply += [outcome] * len(command.changes)
                return f"a change of delegation tokens was refused: {refusal}"
            for change in command.changes:
                if not change.is_new and change.token_id not in known:
                    draft.quota_reply.append(QuotaOutcome(error=ErrorCode.delegation_token_not_found))
                    continue
                draft.quota_reply.append(QuotaOutcome())
                _replace(draft, change.token_id, change.token, must_store=True)
            return f"{len(command.changes)} changes of delegation tokens were requested"


def _replace(draft: Draft, token_id: str, token: DelegationToken | None, *, must_store: bool) -> None:
    if draft.cluster.delegation_tokens.get(token_id) != token:
        draft.record(facts.DelegationTokenReplaced(token_id=token_id, token=token, must_store=must_store))
        draft.changed_tokens.add(token_id)
