"""Digests of access rules: equal for equal rules, in any order."""

from __future__ import annotations

import pytest

from wire.rules.access_digests import (
    acls_digest,
    group_configs_digest,
    quotas_digest,
    topic_configs_digest,
    users_digest,
)
from wire.rules.acls import AccessEntry, Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from wire.rules.client_quotas import CLIENT_ID, USER, Quota
from wire.rules.topic_configs import COPY_BEGINS

READ = Acl(
    ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
    AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
)
OTHERS = [
    READ._replace(pattern=READ.pattern._replace(name="payments")),
    READ._replace(pattern=READ.pattern._replace(pattern_type=PatternType.PREFIXED)),
    READ._replace(pattern=READ.pattern._replace(resource_type=ResourceType.GROUP)),
    READ._replace(entry=READ.entry._replace(principal="User:bob")),
    READ._replace(entry=READ.entry._replace(host="10.0.0.1")),
    READ._replace(entry=READ.entry._replace(operation=Operation.WRITE)),
    READ._replace(entry=READ.entry._replace(permission=Permission.DENY)),
]
QUOTA: Quota = (((USER, "alice"), (CLIENT_ID, None)), "producer_byte_rate", 5.0)


@pytest.mark.parametrize("other", OTHERS)
def test_every_field_of_an_acl_counts(other: Acl) -> None:
    assert acls_digest([READ]) != acls_digest([other])
    assert acls_digest([READ]) != acls_digest([READ, other]) == acls_digest([other, READ])
    assert acls_digest([READ]) != acls_digest([])


def test_the_numbers_of_the_protocol_count_as_their_names() -> None:
    numbers = Acl(ResourcePattern(2, "orders", 3), AccessEntry("User:alice", "*", 3, 3))  # type: ignore[arg-type]
    assert acls_digest([numbers]) == acls_digest([READ])


def test_users_and_quotas_count_with_their_values_in_any_order() -> None:
    alice, bob = ("alice", "SCRAM-SHA-256", "salt=1"), ("bob", "SCRAM-SHA-256", "salt=2")
    assert users_digest([alice, bob]) == users_digest([bob, alice])
    assert users_digest([alice]) != users_digest([("alice", "SCRAM-SHA-256", "salt=2")])
    assert quotas_digest([QUOTA]) == quotas_digest([(QUOTA[0], QUOTA[1], 5)]), "a number may come without a fraction"
    assert quotas_digest([QUOTA]) != quotas_digest([(((USER, "alice"), (CLIENT_ID, "")), QUOTA[1], 5.0)])


def test_configs_count_by_topic_name_and_value_in_any_order() -> None:
    wanted = {"orders": {"retention.ms": "1000", "cleanup.policy": "delete"}, "payments": {}}
    same = {"orders": {"cleanup.policy": "delete", "retention.ms": "1000"}}
    assert topic_configs_digest(wanted) == topic_configs_digest(same) == group_configs_digest(same)
    for other in (
        {"orders": {"retention.ms": "1001", "cleanup.policy": "delete"}},
        {"orders": {"retention.ms": "1000"}},
        {"payments": same["orders"]},
        {},
    ):
        assert topic_configs_digest(other) != topic_configs_digest(same)
        assert group_configs_digest(other) != group_configs_digest(same)


def test_the_offset_at_which_a_copy_begins_is_no_config_of_the_source() -> None:
    same = {"orders": {"retention.ms": "1000"}}
    assert topic_configs_digest({"orders": {**same["orders"], COPY_BEGINS: "0:5"}, "x": {COPY_BEGINS: "1:7"}}) == (
        topic_configs_digest(same)
    )
