"""Names of topics at the target, and the topics that stay out."""

from __future__ import annotations

import re

import pytest

from mirror.link.core.topic_naming import Naming, NamingPolicy, parse_table


def naming(policy: NamingPolicy, **fields: object) -> Naming:
    return Naming(policy=policy, source_alias="a", target_alias="b", **fields)  # type: ignore[arg-type]


def is_skipped(names: Naming, topic: str) -> bool:
    return any(re.fullmatch(pattern, topic) for pattern in names.skipped)


def test_prefix_names_as_mirror_maker_does() -> None:
    names = naming(NamingPolicy.PREFIX)
    assert names.target_name("orders") == "a.orders"
    assert names.checkpoints_topic == "a.checkpoints.internal"
    assert names.offset_syncs_topic(is_at_target=False) == "mm2-offset-syncs.b.internal"
    assert names.offset_syncs_topic(is_at_target=True) == "mm2-offset-syncs.a.internal"


def test_identity_keeps_names_but_for_heartbeats() -> None:
    names = naming(NamingPolicy.IDENTITY)
    assert names.target_name("orders") == "orders"
    assert names.target_name("heartbeats") == "a.heartbeats"


def test_a_table_renames_what_it_names() -> None:
    names = naming(NamingPolicy.TABLE, table=parse_table("orders=eu.orders, payments = pay"))
    assert names.target_name("orders") == "eu.orders"
    assert names.target_name("payments") == "pay"
    assert names.target_name("other") == "other"


@pytest.mark.parametrize("text", ["orders", "orders=", "=orders", "x=z,y=z"])
def test_a_table_that_says_nothing_or_two_things_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not source=target|one name"):
        parse_table(text)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("b.orders", True),
        ("c.b.orders", True),
        ("c.orders", False),
        ("orders", False),
        ("bb.orders", False),
        ("b", False),
        ("__consumer_offsets", True),
        ("mm2-offsets.b.internal", True),
        ("c.checkpoints.internal", True),
        (".hidden", True),
        ("orders.internal", False),
        ("orders.replica", False),
        ("antipode-offset-map.x", True),
        ("antipode-group-offsets.x", True),
        ("heartbeats", False),
    ],
)
def test_topics_that_came_from_the_target_by_their_name_stay_out(topic: str, expected: bool) -> None:
    assert is_skipped(naming(NamingPolicy.PREFIX), topic) is expected


@pytest.mark.parametrize(
    ("is_separated", "checkpoints", "offset_syncs"),
    [
        (True, "a_checkpoints_internal", "mm2-offset-syncs_b_internal"),
        (False, "a.checkpoints.internal", "mm2-offset-syncs.b.internal"),
    ],
)
def test_mirror_maker_s_topics_have_the_separator_or_a_full_stop(
    is_separated: bool,
    checkpoints: str,
    offset_syncs: str,
) -> None:
    """KIP-690."""
    names = naming(NamingPolicy.PREFIX, separator="_", separates_internal_topics=is_separated)
    assert names.checkpoints_topic == checkpoints
    assert names.offset_syncs_topic(is_at_target=False) == offset_syncs
    assert is_skipped(names, checkpoints)
    assert is_skipped(names, offset_syncs)
    assert names.target_name("orders") == "a_orders"


def test_heartbeats_from_further_upstream_are_known_by_their_names() -> None:
    names = naming(NamingPolicy.PREFIX, separator="_")
    assert names.heartbeats is not None
    for topic, expected in (
        ("heartbeats", True),
        ("c_heartbeats", True),
        ("c.heartbeats", False),
        ("_heartbeats", False),
    ):
        assert (re.fullmatch(names.heartbeats, topic) is not None) is expected
    assert naming(NamingPolicy.TABLE).heartbeats is None


def test_separators_are_text_and_not_patterns() -> None:
    names = naming(NamingPolicy.PREFIX, separator="_")
    assert names.target_name("orders") == "a_orders"
    assert is_skipped(names, "b_orders")
    assert not is_skipped(names, "b.orders")
