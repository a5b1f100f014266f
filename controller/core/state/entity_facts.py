"""The facts about clients, users, groups and ACLs, applied to the cluster. Caller: `cluster.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from controller.core.state import facts as fact
from wire.rules.acls import AccessEntry, ResourcePattern
from wire.rules.client_quotas import QuotaEntity, QuotaValues
from wire.rules.delegation_tokens import DelegationToken
from wire.znodes.group_configs import GroupConfigs

Key = TypeVar("Key")
Value = TypeVar("Value")


class Entities(Protocol):
    """The part of a cluster that these facts change."""

    quotas: dict[QuotaEntity, QuotaValues]
    scram_users: dict[str, Mapping[str, str]]
    acls: dict[ResourcePattern, frozenset[AccessEntry]]
    delegation_tokens: dict[str, DelegationToken]
    group_configs: dict[str, GroupConfigs]


def apply_entity_configs(
    cluster: Entities,
    change: fact.ClientQuotaReplaced
    | fact.ScramUserReplaced
    | fact.AclsReplaced
    | fact.DelegationTokenReplaced
    | fact.GroupConfigsReplaced,
) -> None:
    """Replace what the cluster knows of one entity; an empty value removes it."""
    match change:
        case fact.ClientQuotaReplaced():
            _replace(cluster.quotas, change.entity, change.values)
        case fact.ScramUserReplaced():
            _replace(cluster.scram_users, change.user, change.credentials)
        case fact.AclsReplaced():
            _replace(cluster.acls, change.pattern, change.entries)
        case fact.DelegationTokenReplaced():
            _replace(cluster.delegation_tokens, change.token_id, change.token)
        case fact.GroupConfigsReplaced():
            _replace(cluster.group_configs, change.group, change.configs)


def _replace(known: dict[Key, Value], key: Key, value: Value | None) -> None:
    known.pop(key, None)
    if value:
        known[key] = value
