"""The source's ACLs as the mirror carries them to the target."""

from __future__ import annotations

import pytest

from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.topics.core.acls import changes, wanted_acls
from wire.rules.acls import AccessEntry, Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType

PREFIX, IDENTITY = (
    Naming(policy=policy, source_alias="a", target_alias="b") for policy in (NamingPolicy.PREFIX, NamingPolicy.IDENTITY)
)
TABLE = Naming(policy=NamingPolicy.TABLE, source_alias="a", target_alias="b", table={"orders": "eu.orders"})


LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(
    name: str = "orders",
    *,
    pattern: PatternType = LITERAL,
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(
        ResourcePattern(ResourceType.TOPIC, name, pattern), AccessEntry("User:alice", "*", operation, permission)
    )


def wanted(*source: Acl, naming: Naming = PREFIX, excluded: tuple[str, ...] = ()) -> set[Acl]:
    carries = {"orders", "payments"}.__contains__
    return set(wanted_acls(source, naming=naming, carries=carries, excluded_principals=excluded))


@pytest.mark.parametrize(("naming", "copy"), [(PREFIX, "a.orders"), (IDENTITY, "orders"), (TABLE, "eu.orders")])
def test_readers_of_a_topic_may_read_its_copy_under_its_name(naming: Naming, copy: str) -> None:
    assert wanted(acl(), naming=naming) == {acl(copy)}


def test_rights_to_all_operations_are_carried_as_read_and_rights_to_write_are_not() -> None:
    assert wanted(acl(operation=Operation.ALL), acl(operation=Operation.WRITE)) == {acl("a.orders")}
    assert wanted(acl(operation=Operation.DESCRIBE)) == {acl("a.orders", operation=Operation.DESCRIBE)}


@pytest.mark.parametrize("operation", [Operation.ALL, Operation.WRITE, Operation.READ])
def test_a_denied_operation_stays_denied(operation: Operation) -> None:
    denied = acl(operation=operation, permission=Permission.DENY)
    assert wanted(denied) == {acl("a.orders", operation=operation, permission=Permission.DENY)}


def test_topics_that_the_link_does_not_carry_keep_their_acls_to_themselves() -> None:
    assert wanted(acl("secrets")) == set()


def test_patterns_are_carried_only_where_they_cannot_concern_other_topics() -> None:
    everything, some = acl("*"), acl("ord", pattern=PREFIXED)
    assert wanted(everything, some) == {acl("a.", pattern=PREFIXED), acl("a.ord", pattern=PREFIXED)}
    assert wanted(everything, some, naming=IDENTITY) == set()
    assert wanted(everything, some, naming=TABLE) == set()


def test_patterns_of_copies_do_not_return_to_the_site_that_they_came_from() -> None:
    """Of two links in opposite directions, and of a ring of three sites."""
    for sites in ("ab", "abc"):
        acls = {site: {acl(f"{site}*"), acl("*"), acl("ord", pattern=PREFIXED)} for site in sites}
        links = [
            Naming(policy=NamingPolicy.PREFIX, source_alias=source, target_alias=sites[(number + 1) % len(sites)])
            for number, source in enumerate(sites)
        ]
        seen = []
        for _ in range(4):
            for link in links:
                acls[link.target_alias] |= wanted(*acls[link.source_alias], naming=link)
            seen.append({site: len(found) for site, found in acls.items()})
        assert seen[-1] == seen[-2], "each round of the links brings more"


def test_principals_can_be_left_out_by_their_whole_name() -> None:
    assert wanted(acl(), excluded=("User:ali",)) == {acl("a.orders")}
    assert wanted(acl(), excluded=("User:ali.*",)) == set()


def test_only_what_the_source_took_away_is_taken_away() -> None:
    kept, new, gone, made_there = acl("1"), acl("2"), acl("3"), acl("4")
    to_add, to_remove = changes({kept, new}, actual={kept, gone, made_there}, wanted_before={kept, gone})
    assert (to_add, to_remove) == ({new}, {gone})
    assert changes({kept}, actual={kept}, wanted_before={kept, gone}) == (frozenset(), frozenset())
