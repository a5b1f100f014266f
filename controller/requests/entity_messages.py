"""Translates requests about quotas, credentials, ACLs, tokens and configs of groups to commands,
and outcomes to replies. A malformed request raises ValueError.
"""

from __future__ import annotations

from controller.core.decisions import Decision
from controller.core.entity_commands import (
    AlterAcls,
    AlterClientQuotas,
    AlterDelegationTokens,
    AlterGroupConfigs,
    AlterScramUsers,
    DelegationTokenChange,
    GroupConfigChange,
    QuotaChange,
    ScramUserChange,
)
from controller.core.link_claims import LinkClaim
from wire.control import controller_pb2 as pb
from wire.rules.client_quotas import entity_from_message
from wire.znodes.acl_znodes import acls_message, creation_from_message, filter_from_message
from wire.znodes.token_znodes import token_from_message

_Claimed = (
    pb.AlterClientQuotasRequest
    | pb.AlterScramUsersRequest
    | pb.AlterDelegationTokensRequest
    | pb.AlterAclsRequest
    | pb.AlterGroupConfigsRequest
)


def _claim(request: _Claimed) -> LinkClaim:
    """The mirror in whose name the broker requests the change."""
    return LinkClaim(link=request.link, epoch=request.link_epoch)


def quota_changes(request: pb.AlterClientQuotasRequest) -> AlterClientQuotas:
    """The changes of client quotas."""
    return AlterClientQuotas(
        changes=tuple(
            QuotaChange(
                entity=entity_from_message(change.entity), set_values=dict(change.set), remove=tuple(change.remove)
            )
            for change in request.changes
        ),
        is_validate_only=request.is_validate_only,
        claim=_claim(request),
    )


def scram_changes(request: pb.AlterScramUsersRequest) -> AlterScramUsers:
    """The changes of SCRAM credentials."""
    return AlterScramUsers(
        changes=tuple(
            ScramUserChange(name=change.name, set_credentials=dict(change.set), remove=tuple(change.remove))
            for change in request.changes
        ),
        claim=_claim(request),
    )


def token_changes(request: pb.AlterDelegationTokensRequest) -> AlterDelegationTokens:
    """The changes of delegation tokens."""
    return AlterDelegationTokens(
        changes=tuple(
            DelegationTokenChange(
                token_id=change.token.token_id, token=token_from_message(change.token), is_new=change.is_new
            )
            for change in request.tokens
        ),
        claim=_claim(request),
    )


def acl_changes(request: pb.AlterAclsRequest) -> AlterAcls:
    """The ACLs to add, and the filters of those to remove."""
    return AlterAcls(
        creations=tuple(map(creation_from_message, request.creations)),
        removals=tuple(map(filter_from_message, request.removals)),
        claim=_claim(request),
    )


def group_config_changes(request: pb.AlterGroupConfigsRequest) -> AlterGroupConfigs:
    """The changes of groups' configs."""
    return AlterGroupConfigs(
        changes=tuple(
            GroupConfigChange(
                group=change.group,
                set_values=dict(change.set),
                remove=tuple(change.remove),
                replaces_all=change.replaces_all,
            )
            for change in request.changes
        ),
        claim=_claim(request),
    )


def entity_results(decision: Decision) -> list[pb.QuotaResult]:
    """The outcome of each change of quotas, credentials, tokens or configs of groups."""
    return [pb.QuotaResult(error_code=outcome.error, error_message=outcome.message) for outcome in decision.quotas]


def acl_results(decision: Decision) -> list[pb.AclResult]:
    """The outcome of each creation and filter of ACLs."""
    return [
        pb.AclResult(
            error_code=outcome.error,
            error_message=outcome.message,
            removed=[acls_message(acl.pattern, (acl.entry,)) for acl in outcome.removed],
        )
        for outcome in decision.acls
    ]
