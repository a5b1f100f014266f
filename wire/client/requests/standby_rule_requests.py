"""Writes ACLs, client quotas and configs of groups at the standby of a link, in the name of the
link's mirror (`StandbyRules`). BrokerError when the site is not the link's standby at the epoch, or
refuses a change; UnsupportedApi when the site runs an earlier release.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from wire.client.raw_client import KafkaClient
from wire.client.requests.answer_checks import check_outcome, controller_connection
from wire.protocol.messages.access_change_messages import STANDBY_RULES
from wire.rules.acls import Acl
from wire.rules.client_quotas import QuotaEntity


class Claim(Struct, frozen=True):
    """The link, and its epoch when the mirror began to read what it writes."""

    link: str
    epoch: int


async def write_acls(client: KafkaClient, claim: Claim, *, to_set: Iterable[Acl], to_remove: Iterable[Acl]) -> None:
    """Create and delete ACLs."""
    entries = [(acl, False) for acl in to_set] + [(acl, True) for acl in to_remove]
    acls = [
        {
            "resource_type": acl.pattern.resource_type,
            "resource_name": acl.pattern.name,
            "resource_pattern_type": acl.pattern.pattern_type,
            "principal": acl.entry.principal,
            "host": acl.entry.host,
            "operation": acl.entry.operation,
            "permission_type": acl.entry.permission,
            "is_removal": is_removal,
        }
        for acl, is_removal in entries
    ]
    await _write(client, claim, acls=acls)


async def write_quotas(
    client: KafkaClient,
    claim: Claim,
    *,
    to_set: Mapping[tuple[QuotaEntity, str], float],
    to_remove: Iterable[tuple[QuotaEntity, str]],
) -> None:
    """Set and remove quotas."""
    entries = [(*name, value, False) for name, value in sorted(to_set.items(), key=str)]
    entries += [(*name, 0.0, True) for name in sorted(to_remove, key=str)]
    quotas = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "key": key,
            "value": value,
            "is_removal": is_removal,
        }
        for entity, key, value, is_removal in entries
    ]
    await _write(client, claim, quotas=quotas)


async def write_group_configs(
    client: KafkaClient, claim: Claim, group: str, *, to_set: Mapping[str, str], to_remove: Collection[str]
) -> None:
    """Set and remove configs of a group."""
    written: dict[str, str | None] = {**to_set, **dict.fromkeys(to_remove)}
    configs = [{"group": group, "name": name, "value": value} for name, value in sorted(written.items())]
    await _write(client, claim, group_configs=configs)


async def _write(client: KafkaClient, claim: Claim, **parts: list[dict[str, Any]]) -> None:
    connection = await controller_connection(client)
    request = {"link": claim.link, "link_epoch": claim.epoch, "acls": (), "quotas": (), "group_configs": (), **parts}
    answer = await connection.call(STANDBY_RULES, request)
    check_outcome(answer, connection, STANDBY_RULES)
