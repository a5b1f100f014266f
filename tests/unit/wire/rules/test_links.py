"""The topics of a link, and a site's rights under it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import (
    DEFAULT_TOPIC_BLACKLIST,
    LEADER_EPOCH_BAND,
    InvalidPattern,
    SiteRole,
    blacklist_of,
    carries_group,
    carries_topic,
    governing_link,
    links_of_topic,
    matches,
    next_leader_epoch_floor,
    other_site,
    role_of,
    supersedes,
)
from wire.rules.topic_names import INTERNAL_TOPICS


def _link(**fields: object) -> LinkRecord:
    defaults: dict[str, object] = {
        "name": "a-b",
        "source_site": "a",
        "target_site": "b",
        "active_site": "a",
        "phase": LinkPhase.MIRRORING,
        "topic_whitelist": ["flights.*", "orders"],
        "topic_blacklist": [".*-local"],
        "group_whitelist": [".*"],
    }
    return LinkRecord(**{**defaults, **fields})


@pytest.mark.parametrize(
    ("topic", "is_carried"),
    [
        ("flights", True),
        ("flights.raw", True),
        ("flights-local", False),
        ("orders", True),
        ("orders2", False),
        ("x", False),
    ],
)
def test_exclude_wins_and_unmatched_is_out(topic: str, is_carried: bool) -> None:
    assert carries_topic(_link(), topic) is is_carried


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_never_carried(topic: str) -> None:
    assert not carries_topic(_link(topic_whitelist=[".*"], topic_blacklist=[], is_blacklist_complete=True), topic)


@pytest.mark.parametrize(
    ("fields", "carried"),
    [
        ({"topic_blacklist": [], "is_blacklist_complete": True}, ["__mine", "mm2-x.internal", "t.replica", "t"]),
        ({"topic_blacklist": DEFAULT_TOPIC_BLACKLIST, "is_blacklist_complete": True}, ["t"]),
        ({"topic_blacklist": ["t"], "is_blacklist_complete": True}, ["__mine", "mm2-x.internal", "t.replica"]),
        ({"topic_blacklist": []}, ["mm2-x.internal", "t.replica", "t"]),
        ({"topic_blacklist": ["t"]}, ["mm2-x.internal", "t.replica"]),
    ],
    ids=["nothing stays", "the default", "a list of its own", "an older link", "an older link with a list"],
)
def test_topics_of_users_stay_at_home_by_the_blacklist_alone(fields: dict[str, object], carried: list[str]) -> None:
    link = _link(topic_whitelist=[".*"], **fields)
    assert [topic for topic in ("__mine", "mm2-x.internal", "t.replica", "t") if carries_topic(link, topic)] == carried


def test_an_older_link_shows_what_it_leaves_at_home_without_listing_it() -> None:
    assert blacklist_of(_link()) == (".*-local", "__.*")
    assert blacklist_of(_link(is_blacklist_complete=True)) == (".*-local",)


def test_a_pattern_matches_the_whole_name() -> None:
    assert not matches("myorders", whitelist=["orders"], blacklist=[])


def test_groups_are_carried_by_their_own_patterns() -> None:
    assert carries_group(_link(group_blacklist=["tmp-.*"]), "billing")
    assert not carries_group(_link(group_blacklist=["tmp-.*"]), "tmp-1")


def test_a_wrong_pattern_is_named() -> None:
    with pytest.raises(InvalidPattern, match=r"'\(' is not a regular expression"):
        carries_topic(_link(topic_whitelist=["("]), "x")


def test_the_role_follows_active_site_and_phase() -> None:
    fenced = _link(phase=LinkPhase.FENCED)
    assert [role_of(_link(), "a"), role_of(_link(), "b")] == [SiteRole.ACTIVE, SiteRole.PASSIVE]
    assert [role_of(fenced, "a"), role_of(fenced, "b")] == [SiteRole.FENCED, SiteRole.PASSIVE]


def test_of_several_links_of_a_topic_the_most_restrictive_decides() -> None:
    """Site a has two standbys: when one is promoted, or is about to be, a is not active by the
    other link.
    """
    plain, sync = _link(name="a-b"), _link(name="a-c", sync_policy="block")
    fenced = _link(name="a-d", phase=LinkPhase.FENCED)
    promoted = _link(name="a-e", active_site="b")

    def decides(*links: LinkRecord) -> str:
        found = governing_link(links_of_topic(links, "orders"), "a")
        assert found is not None
        return found.name

    assert decides(plain) == "a-b"
    assert decides(plain, sync) == "a-c", "what acknowledgements wait for"
    assert decides(plain, sync, fenced) == "a-d"
    assert decides(promoted, fenced, sync, plain) == "a-e"
    assert decides(_link(name="z"), _link(name="m")) == "m"
    assert governing_link(links_of_topic([_link()], "unknown"), "a") is None


def test_the_other_site_of_a_stranger_is_refused() -> None:
    assert other_site(_link(), "b") == "a"
    with pytest.raises(ValueError, match="'c' is not part of link 'a-b'"):
        other_site(_link(), "c")


def test_a_higher_epoch_or_a_later_phase_supersedes() -> None:
    stored = _link(epoch=4)
    assert supersedes(_link(epoch=5), stored)
    assert supersedes(_link(epoch=4, phase=LinkPhase.FENCED), stored)
    assert not supersedes(_link(epoch=4), stored)
    assert not supersedes(_link(epoch=3, phase=LinkPhase.FENCED), stored)


def test_a_later_revision_supersedes_within_its_epoch_and_phase_alone() -> None:
    stored = _link(epoch=4, revision=2)
    assert supersedes(_link(epoch=4, revision=3), stored)
    assert not supersedes(_link(epoch=4, revision=2), stored)
    assert not supersedes(_link(epoch=3, revision=9), stored)
    assert supersedes(_link(epoch=4, phase=LinkPhase.FENCED), stored)


@given(st.integers(0, 2**29), st.integers(-1, 2**29))
def test_a_new_floor_is_above_every_epoch_that_either_site_may_still_use(floor: int, highest: int) -> None:
    found = next_leader_epoch_floor(current_floor=floor, highest_known_epoch=highest)
    assert found > max(floor, highest)
    assert found % LEADER_EPOCH_BAND == 0
    assert found - max(floor, highest) <= LEADER_EPOCH_BAND


def test_floors_run_out_with_an_error() -> None:
    with pytest.raises(ValueError, match="leaves no room"):
        next_leader_epoch_floor(current_floor=(1 << 31) - LEADER_EPOCH_BAND, highest_known_epoch=0)
