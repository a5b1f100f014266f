"""The access rules that the mirror sets and removes at the standby."""

from __future__ import annotations

from functools import partial

from mirror.topics.core.access_changes import access_changes
from wire.rules.access_digests import KEY_BYTES, QUOTAS, USERS, joined_keys, rule_key, split_keys
from wire.rules.acls import AccessEntry, Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType

KEY = partial(rule_key, USERS)


def test_only_rules_that_both_sites_have_had_are_removed() -> None:
    wanted, actual = {"alice": 1, "bob": 2}, {"alice": 1, "bob": 3, "revoked": 4, "standby-only": 5}
    shared = {KEY("alice"), KEY("revoked")}
    found = access_changes(wanted, actual=actual, shared=shared, key=KEY)
    assert found.to_set == {"bob": 2}
    assert list(found.to_remove) == ["revoked"]
    assert found.keys == {KEY("alice"), KEY("bob")}


def test_a_rule_without_a_value_is_set_where_it_is_missing() -> None:
    assert access_changes({"alice": None}, actual={}, shared=(), key=KEY).to_set == {"alice": None}
    assert access_changes({"alice": None}, actual={"alice": None}, shared=(), key=KEY).to_set == {}


def test_keys_differ_by_part_and_identity_and_survive_their_storage() -> None:
    read = Acl(
        ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
        AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
    )
    numbers = Acl(ResourcePattern(2, "orders", 3), AccessEntry("User:alice", "*", 3, 3))  # type: ignore[arg-type]
    assert KEY(read) == KEY(numbers), "the members of an enum count as the numbers of the protocol"
    keys = frozenset({KEY("alice"), KEY("bob"), rule_key(QUOTAS, "alice"), KEY(read)})
    assert {len(key) for key in keys} == {KEY_BYTES}
    assert len(keys) == 4
    assert split_keys(joined_keys(keys)) == keys
    assert split_keys(b"") == frozenset()
