"""ACLs, SCRAM users, quotas, delegation tokens and group configs do not change while the site is
fenced for a move, nor by a mirror whose link the site does not follow at its epoch.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from controller.core.decisions import AclOutcome, Decision, QuotaOutcome
from controller.core.entity_commands import (
    AclsRead,
    AlterAcls,
    AlterClientQuotas,
    AlterDelegationTokens,
    AlterGroupConfigs,
    AlterScramUsers,
    DelegationTokenChange,
    DelegationTokensRead,
    GroupConfigChange,
    QuotaChange,
    RemoveExpiredTokens,
    ScramUserChange,
)
from controller.core.link_claims import LinkClaim
from tests.support.memory.site_model import SiteModel, link_record
from wire.control.cluster_pb2 import LinkPhase
from wire.rules.acls import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from wire.rules.client_quotas import USER
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.principals import Principal

READ = Acl(
    ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
    AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
)
ALICE = Principal("User", "alice")
TOKEN = DelegationToken("t", ALICE, ALICE, (), 0, 100, 1000)
CHANGES = [
    AlterAcls(creations=(READ,), removals=(AclFilter(name="payments"),)),
    AlterScramUsers(changes=(ScramUserChange(name="alice", set_credentials={"SCRAM-SHA-256": "salt"}, remove=()),)),
    AlterClientQuotas(
        changes=(QuotaChange(entity=((USER, "alice"),), set_values={"producer_byte_rate": 1.0}, remove=()),)
    ),
    AlterDelegationTokens(changes=(DelegationTokenChange(token_id="t", token=TOKEN, is_new=True),)),
    AlterGroupConfigs(
        changes=(GroupConfigChange(group="billing", set_values={"consumer.session.timeout.ms": "50000"}),)
    ),
]


def site(*, active: str, phase: LinkPhase.ValueType, epoch: int = 1) -> SiteModel:
    model = SiteModel()
    model.alive(1)
    model.links["b-a"] = link_record(active=active, phase=phase, epoch=epoch)
    model.take_over()
    return model


def outcomes(decision: Decision) -> list[AclOutcome | QuotaOutcome]:
    return [*decision.acls, *decision.quotas]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_a_fenced_site_changes_nothing_and_says_where_to_change_it(change: AlterAcls) -> None:
    model = site(active="a", phase=LinkPhase.FENCED)
    decision = model.give(change)
    assert decision.facts == ()
    refused = outcomes(decision)
    assert len(refused) == (2 if isinstance(change, AlterAcls) else 1)
    for outcome in refused:
        assert outcome.error is ErrorCode.policy_violation
        assert outcome.message is not None
        assert "link 'b-a' is fenced for a failover to site 'b'" in outcome.message


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
@pytest.mark.parametrize(
    ("active", "phase"),
    [
        pytest.param("a", LinkPhase.MIRRORING, id="active"),
        pytest.param("b", LinkPhase.FENCED, id="the standby, which the mirror drains into"),
    ],
)
def test_every_other_site_changes_them(change: AlterAcls, active: str, phase: LinkPhase.ValueType) -> None:
    decision = site(active=active, phase=phase).give(change)
    assert [outcome.error for outcome in outcomes(decision)] == [ErrorCode.none] * len(outcomes(decision))
    assert decision.facts


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
@pytest.mark.parametrize(
    ("active", "claim", "reason"),
    [
        pytest.param("b", LinkClaim(link="b-a", epoch=4), "", id="the mirror of the standby"),
        pytest.param("b", LinkClaim(link="b-a", epoch=3), "a mirror of epoch 3 may not change", id="earlier epoch"),
        pytest.param("b", LinkClaim(link="b-a", epoch=5), "a mirror of epoch 5 may not change", id="later epoch"),
        pytest.param("a", LinkClaim(link="b-a", epoch=4), "with active site 'a'", id="active"),
        pytest.param("b", LinkClaim(link="other", epoch=4), "the site has no link 'other'", id="another link"),
    ],
)
def test_a_mirror_changes_them_only_at_the_standby_of_its_link_at_its_epoch(
    change: AlterAcls, active: str, claim: LinkClaim, reason: str
) -> None:
    decision = site(active=active, phase=LinkPhase.MIRRORING, epoch=4).give(replace(change, claim=claim))
    assert bool(decision.facts) == (not reason)
    for outcome in outcomes(decision):
        assert outcome.error is (ErrorCode.policy_violation if reason else ErrorCode.none)
        assert reason in (outcome.message or "")


def test_entities_that_another_tool_has_stored_are_taken_over_under_a_fence() -> None:
    model = site(active="a", phase=LinkPhase.FENCED)
    model.give(AclsRead(acls={READ.pattern: frozenset({READ.entry})}))
    assert model.cluster.acls == {READ.pattern: {READ.entry}}


def test_expired_tokens_are_removed_under_a_fence() -> None:
    model = site(active="a", phase=LinkPhase.FENCED)
    model.give(DelegationTokensRead(tokens={"t": TOKEN}))
    model.give(RemoveExpiredTokens(now_ms=101))
    assert model.cluster.delegation_tokens == {}
