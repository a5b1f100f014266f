"""Commands about quotas, credentials, ACLs, delegation tokens and configs of groups. Each comes
from a broker's request, or reports the content of ZooKeeper. `claim`: the mirror in whose name the
broker requests the change.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from controller.core.link_claims import LinkClaim
from wire.rules.acls import AccessEntry, Acl, AclFilter, ResourcePattern
from wire.rules.client_quotas import QuotaEntity
from wire.rules.delegation_tokens import DelegationToken


class QuotaChange(Struct, frozen=True, kw_only=True):
    """Quotas of one entity to set and to remove."""

    entity: QuotaEntity
    set_values: Mapping[str, float] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


class AlterClientQuotas(Struct, frozen=True, kw_only=True):
    """Change client quotas; a refused entity does not affect the others."""

    changes: tuple[QuotaChange, ...]
    is_validate_only: bool = False
    claim: LinkClaim = LinkClaim()


class ClientQuotasRead(Struct, frozen=True, kw_only=True):
    """All client quotas as they are stored now, after a notice of change."""

    quotas: Mapping[QuotaEntity, Mapping[str, float]]


class ScramUserChange(Struct, frozen=True, kw_only=True):
    """SCRAM credentials of one user to set and to remove, by mechanism."""

    name: str
    set_credentials: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


class AlterScramUsers(Struct, frozen=True, kw_only=True):
    """Change SCRAM credentials; a refused user does not affect the others."""

    changes: tuple[ScramUserChange, ...]
    claim: LinkClaim = LinkClaim()


class ScramUsersRead(Struct, frozen=True, kw_only=True):
    """All SCRAM credentials as they are stored now, after a notice of change."""

    users: Mapping[str, Mapping[str, str]]


class AlterAcls(Struct, frozen=True, kw_only=True):
    """Add ACLs, then remove those that match a filter."""

    creations: tuple[Acl, ...] = ()
    removals: tuple[AclFilter, ...] = ()
    claim: LinkClaim = LinkClaim()


class AclsRead(Struct, frozen=True, kw_only=True):
    """All ACLs as they are stored now, after a notice of change."""

    acls: Mapping[ResourcePattern, frozenset[AccessEntry]]


class DelegationTokenChange(Struct, frozen=True, kw_only=True):
    """A delegation token to make (`is_new`), to alter, or to remove (None)."""

    token_id: str
    token: DelegationToken | None
    is_new: bool = False


class AlterDelegationTokens(Struct, frozen=True, kw_only=True):
    """Change delegation tokens; a refused token does not affect the others."""

    changes: tuple[DelegationTokenChange, ...]
    claim: LinkClaim = LinkClaim()


class DelegationTokensRead(Struct, frozen=True, kw_only=True):
    """All delegation tokens as they are stored now, after a notice of change."""

    tokens: Mapping[str, DelegationToken]


class RemoveExpiredTokens(Struct, frozen=True, kw_only=True):
    """Remove the tokens that have expired before this time (Unix ms)."""

    now_ms: int


class GroupConfigChange(Struct, frozen=True, kw_only=True):
    """Configs of one group to set and to remove; with `replaces_all`, all other configs are
    removed.
    """

    group: str
    set_values: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    replaces_all: bool = False


class AlterGroupConfigs(Struct, frozen=True, kw_only=True):
    """Change configs of groups; the broker that asks has checked the values."""

    changes: tuple[GroupConfigChange, ...]
    claim: LinkClaim = LinkClaim()


class GroupConfigsRead(Struct, frozen=True, kw_only=True):
    """The configs of all groups as they are stored now, after a notice of change."""

    configs: Mapping[str, Mapping[str, str]]


EntityConfigCommand = (
    AlterClientQuotas
    | ClientQuotasRead
    | AlterScramUsers
    | ScramUsersRead
    | AlterAcls
    | AclsRead
    | AlterDelegationTokens
    | DelegationTokensRead
    | RemoveExpiredTokens
    | AlterGroupConfigs
    | GroupConfigsRead
)
