"""ACLs at the controller: the answers to several filters of one request."""

from __future__ import annotations

from controller.core.entity_commands import AlterAcls
from tests.support.memory.site_model import SiteModel
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


def test_an_acl_that_two_filters_choose_is_answered_for_each() -> None:
    """As Apache Kafka 4.3.1 answers."""
    model = SiteModel()
    model.alive(1)
    model.take_over()
    entry = AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
    exact, prefixed = (
        Acl(ResourcePattern(ResourceType.TOPIC, name, kind), entry)
        for name, kind in (("orders", PatternType.LITERAL), ("ord", PatternType.PREFIXED))
    )
    model.give(AlterAcls(creations=(exact, prefixed), removals=()))
    filters = (
        AclFilter(name="orders", pattern_type=PatternType.MATCH),
        AclFilter(name="orders", pattern_type=PatternType.LITERAL),
    )
    decision = model.give(AlterAcls(creations=(), removals=filters))
    assert [set(outcome.removed) for outcome in decision.acls] == [{exact, prefixed}, {exact}]
    assert not any(model.cluster.acls.values())
