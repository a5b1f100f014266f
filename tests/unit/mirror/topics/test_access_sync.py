"""Access rules of two sites in the first moments after the link has changed its direction: the
mirror does not know it yet, and an operator already changes rules at the promoted site.
"""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

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
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import stand
from mirror.topics.access_sync import AccessSync
from tests.support.clock import ManualClock
from tests.support.memory.access_site import AccessSite
from tests.support.memory.shared_access import MemorySharedAccess
from wire.client.client_errors import BrokerError
from wire.client.requests.acl_requests import exactly
from wire.client.requests.standby_rule_requests import Claim, write_acls, write_group_configs, write_quotas
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.messages.delegation_token_messages import DELEGATION_TOKENS
from wire.protocol.messages.scram_user_messages import SCRAM_USERS
from wire.rules.acls import AccessEntry, Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from wire.rules.client_quotas import USER, QuotaEntity
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.principals import Principal
from wire.znodes.token_znodes import encode_token

READ = Acl(
    ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
    AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
)
ALICE: QuotaEntity = ((USER, "alice"),)
OWNER = Principal("User", "alice")
TOKEN = DelegationToken("of-alice", OWNER, OWNER, (), 1, 4_000_000_000_000, 4_000_000_000_001)
SCRAM = "SCRAM-SHA-256"
RATE = "producer_byte_rate"
SESSION = "consumer.session.timeout.ms"


def link(active: str, epoch: int, phase: LinkPhase.ValueType = LinkPhase.MIRRORING) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site=active,
        epoch=epoch,
        phase=phase,
        topic_whitelist=[".*"],
        mode="exact",
    )


class Pair:
    """Two sites with the same rules of alice, and the mirror into b, which drains the fenced a."""

    def __init__(self) -> None:
        self.a, self.b = AccessSite("a"), AccessSite("b")
        self.give_alice(self.a)
        fenced = link("a", 1, LinkPhase.FENCED)
        for site in (self.a, self.b):
            site.adopt(fenced)
        self.known = KnownLink(stand(fenced, "b"))
        self.sync = AccessSync(
            source=self.a,  # type: ignore[arg-type]
            target=self.b,  # type: ignore[arg-type]
            watch=None,  # type: ignore[arg-type]
            link=self.known,
            shared=MemorySharedAccess(),
            clock=ManualClock(),
            interval_ms=5_000,
        )

    @staticmethod
    def give_alice(site: AccessSite) -> None:
        for command in (
            AlterAcls(creations=(READ,)),
            AlterScramUsers(changes=(ScramUserChange(name="alice", set_credentials={SCRAM: "salt"}),)),
            AlterClientQuotas(changes=(QuotaChange(entity=ALICE, set_values={RATE: 1000.0}),)),
            AlterDelegationTokens(changes=(DelegationTokenChange(token_id=TOKEN.token_id, token=TOKEN, is_new=True),)),
        ):
            site.model.give(command)

    @staticmethod
    def remove_alice(site: AccessSite) -> None:
        for command in (
            AlterAcls(removals=(exactly(READ),)),
            AlterScramUsers(changes=(ScramUserChange(name="alice", remove=(SCRAM,)),)),
            AlterClientQuotas(changes=(QuotaChange(entity=ALICE, remove=(RATE,)),)),
            AlterDelegationTokens(changes=(DelegationTokenChange(token_id=TOKEN.token_id, token=None),)),
        ):
            site.model.give(command)


def rules(site: AccessSite) -> dict[str, Any]:
    """What the controller of the site has."""
    cluster = site.model.cluster
    return {
        "ACLs": {acl for acl, entries in cluster.acls.items() if entries},
        "users": {name for name, credentials in cluster.scram_users.items() if credentials},
        "quotas": {entity: dict(values) for entity, values in cluster.quotas.items() if values},
        "tokens": set(cluster.delegation_tokens),
    }


ALICES = {
    "ACLs": {READ.pattern},
    "users": {"alice"},
    "quotas": {ALICE: {RATE: 1000.0}},
    "tokens": {TOKEN.token_id},
}
NONE: dict[str, Any] = {"ACLs": set(), "users": set(), "quotas": {}, "tokens": set()}


async def test_rules_that_are_removed_at_the_promoted_site_do_not_come_back() -> None:
    pair = Pair()
    await pair.sync.round()
    assert pair.sync.problems == {}
    assert rules(pair.b) == ALICES
    pair.b.adopt(link("b", 2))
    pair.remove_alice(pair.b)
    await pair.sync.round()
    assert rules(pair.b) == NONE


async def test_rules_that_are_added_or_changed_at_the_promoted_site_stay() -> None:
    pair = Pair()
    await pair.sync.round()
    pair.b.adopt(link("b", 2))
    faster = AlterClientQuotas(changes=(QuotaChange(entity=ALICE, set_values={RATE: 2000.0}),))
    pair.b.model.give(faster)
    pair.a.adopt(link("a", 1))
    pair.remove_alice(pair.a)  # by another tool, while the former site does not know the promotion
    await pair.sync.round()
    assert rules(pair.b) == {**ALICES, "quotas": {ALICE: {RATE: 2000.0}}}


async def test_the_controller_refuses_what_a_broker_of_the_promoted_site_still_passes_on() -> None:
    pair = Pair()
    assert rules(pair.b) == NONE
    assert pair.b.image.links["a-b"].epoch == 1
    pair.b.is_behind = True
    pair.b.adopt(link("b", 2))
    await pair.sync.round()
    assert rules(pair.b) == NONE


async def test_configs_of_groups_are_written_at_the_standby_alone() -> None:
    site = AccessSite("b")
    stale = Claim("a-b", 1)
    site.adopt(link("a", 1))
    await write_group_configs(site, stale, "billing", to_set={SESSION: "50000"}, to_remove=())  # type: ignore[arg-type]
    site.adopt(link("b", 2))
    site.model.give(AlterGroupConfigs(changes=(GroupConfigChange(group="billing", remove=(SESSION,)),)))
    for claim in (stale, Claim("a-b", 2), Claim("other", 2)):
        with pytest.raises(BrokerError, match="may not change group configs"):
            await write_group_configs(site, claim, "billing", to_set={SESSION: "50000"}, to_remove=())  # type: ignore[arg-type]
    assert not site.model.cluster.group_configs.get("billing")


async def test_a_request_that_names_no_link_writes_nothing() -> None:
    pair = Pair()
    pair.b.adopt(link("b", 2))
    user = {"name": "alice", "mechanism": SCRAM, "credential": "salt"}
    token = {"token_id": TOKEN.token_id, "document": encode_token(TOKEN).decode()}
    unnamed = {"link": "", "link_epoch": 2}
    for api_key, entries in ((SCRAM_USERS, {"users": [user]}), (DELEGATION_TOKENS, {"tokens": [token]})):
        answer = await pair.b.call(api_key, {**unnamed, **entries})
        assert answer.error_code is ErrorCode.invalid_request
    for written in (
        write_acls(pair.b, Claim("", 2), to_set=[READ], to_remove=()),  # type: ignore[arg-type]
        write_quotas(pair.b, Claim("", 2), to_set={(ALICE, RATE): 1.0}, to_remove=()),  # type: ignore[arg-type]
        write_group_configs(pair.b, Claim("", 2), "billing", to_set={SESSION: "50000"}, to_remove=()),  # type: ignore[arg-type]
    ):
        with pytest.raises(BrokerError, match="names no link"):
            await written
    assert rules(pair.b) == NONE
    assert not pair.b.model.cluster.group_configs.get("billing")
