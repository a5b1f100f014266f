"""The facts about clients, users, groups and ACLs, applied to the cluster. Caller: `cluster.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.state import facts as fact

if TYPE_CHECKING:
    from controller.core.state.cluster import Cluster


def apply_entity_configs(
    cluster: Cluster,
    change: fact.ClientQuotaReplaced
    | fact.ScramUserReplaced
    | fact.AclsReplaced
    | fact.DelegationTokenReplaced
    | fact.GroupConfigsReplaced,
) -> None:
    """Replace what the cluster knows of one entity; an empty value removes it."""
    match change:
        case fact.ClientQuotaReplaced():
            cluster.quotas.pop(change.entity, None)
            if change.values:
                cluster.quotas[change.entity] = change.values
        case fact.ScramUserReplaced():
            cluster.scram_users.pop(change.user, None)
            if change.credentials:
                cluster.scram_users[change.user] = change.credentials
        case fact.AclsReplaced():
            cluster.acls.pop(change.pattern, None)
            if change.entries:
                cluster.acls[change.pattern] = change.entries
        case fact.DelegationTokenReplaced():
            cluster.delegation_tokens.pop(change.token_id, None)
            if change.token is not None:
                cluster.delegation_tokens[change.token_id] = change.token
        case fact.GroupConfigsReplaced():
            cluster.group_configs.pop(change.group, None)
            if change.configs:
                cluster.group_configs[change.group] = change.configs
