"""The links of several standbys after one of them was promoted: three sites and their stored
records, with every order of their agents' steps.
"""

from __future__ import annotations

import itertools

import pytest

from dr.agent.core.following import Change, Step, without_standby
from dr.sites.core.following_sentences import following_sentence
from dr.sites.core.record_changes import changed
from tests.unit.dr.agent.core.following_world import Sites, link
from wire.control.cluster_pb2 import LinkPhase
from wire.rules.links import LEADER_EPOCH_BAND, SyncPolicy

BAND = LEADER_EPOCH_BAND


def two_standbys(**options: str) -> Sites:
    sites = Sites(link("a-b", "a", "b", **options), link("a-c", "a", "c", **options))
    sites.settle()
    return sites


def test_the_standbys_of_one_site_learn_each_others_addresses() -> None:
    sites = two_standbys()
    for name in ("a-b", "a-c"):
        for store in sites.stores.values():
            if name in store:
                assert store[name].sites.keys() == {"a", "b", "c"}
                assert (store[name].epoch, store[name].active_site) == (1, "a")
    assert following_sentence(sites.stores["c"]["a-c"]) == "c follows b if b is promoted"


def test_links_of_other_topics_do_not_learn_of_each_other() -> None:
    sites = Sites(link("a-b", "a", "b", whitelist="orders"), link("a-c", "a", "c"))
    sites.settle()
    sites.down.add("a")
    sites.promote("a-b", "b")
    sites.settle()
    assert sites.active("a-c") == {"a": "a", "c": "a"}
    assert following_sentence(sites.stores["c"]["a-c"]) == ""


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
def test_a_standby_follows_the_promoted_site_and_the_lost_one_leaves_when_it_returns(order: tuple[str, ...]) -> None:
    sites = two_standbys()
    sites.down.add("a")
    sites.promote("a-b", "b")
    sites.settle(order)
    assert sites.active("a-c") == {"a": "a", "b": "b", "c": "b"}
    record = sites.stores["c"]["a-c"]
    assert (record.source_site, record.target_site, record.epoch, record.replaced_site) == ("b", "c", 2, "a")
    assert record.leader_epoch_floor == sites.stores["b"]["a-b"].leader_epoch_floor == BAND
    assert following_sentence(record) == "c follows b in place of a; c follows a if a is promoted"
    sites.down.clear()
    sites.settle(order)
    assert sites.active("a-c") == {"b": "b", "c": "b"}
    assert sites.active("a-b") == {"a": "b", "b": "b"}
    assert sites.writers() == {"b"}


def test_a_link_that_follows_the_site_that_it_was_made_with_is_as_it_was() -> None:
    sites = two_standbys()
    sites.promote("a-b", "b")
    sites.settle()
    sites.promote("a-b", "a")
    sites.settle()
    assert sites.active("a-c") == {"a": "a", "c": "a"}
    record = sites.stores["c"]["a-c"]
    assert (record.source_site, record.epoch, record.replaced_site) == ("a", 3, "")
    sites.promote("a-c", "c")
    sites.settle()
    assert sites.active("a-b") == {"b": "c", "c": "c"}
    assert sites.writers() == {"c"}


def test_s_a_the_next_epoch_is_stored_first_at_the_standby() -> None:
    """Also when the standby's agent ends right after: the promoted site joins later."""
    sites = two_standbys()
    sites.down.add("a")
    sites.promote("a-b", "b")
    assert sites.due("b") == []
    (follow,) = sites.due("c")
    sites.make("c", follow)
    assert sites.active("a-c") == {"a": "a", "c": "b"}
    sites.down.add("c")
    sites.settle()
    assert sites.active("a-c") == {"a": "a", "c": "b"}
    sites.down.discard("c")
    (join,) = sites.due("b")
    for _ in range(2):  # a second agent, or the same one after an answer that was lost
        sites.make("b", join)
        assert sites.active("a-c") == {"a": "a", "b": "b", "c": "b"}
    assert sites.due("b") == sites.due("c") == []


def test_s_b_a_site_that_answers_with_an_earlier_promotion_is_not_followed() -> None:
    sites = two_standbys()
    sites.promote("a-b", "b")
    sites.settle()
    stale = {name: changed(one) for name, one in sites.stores["b"].items()}
    sites.promote("a-b", "a")
    sites.settle()
    sites.stores["b"], sites.down = stale, {"a"}
    assert sites.due("c") == []


def test_s_b_a_link_that_is_made_later_knows_how_late_it_is() -> None:
    sites = two_standbys()
    sites.promote("a-b", "b")
    sites.settle()
    stale = {name: changed(one) for name, one in sites.stores["b"].items()}
    sites.promote("a-b", "a")
    sites.settle()
    new = link("a-d", "a", "d")
    sites.stores["d"] = {"a-d": changed(new)}
    sites.stores["a"]["a-d"] = new
    sites.settle()
    assert sites.stores["d"]["a-d"].leader_epoch_floor == 2 * BAND
    sites.stores["b"], sites.down = stale, {"a"}
    assert sites.due("d") == []


def test_s_c_a_standby_stays_with_an_active_site_that_answers_and_knows_of_no_promotion() -> None:
    """An operator declared the active site down, but only its line to the promoted site is cut."""
    sites = two_standbys()
    sites.cut.add(frozenset("ab"))
    sites.promote("a-b", "b")
    sites.settle()
    assert sites.active("a-c") == {"a": "a", "c": "a"}
    sites.cut.clear()
    sites.settle()
    assert sites.active("a-c") == {"b": "b", "c": "b"}


def test_s_d_of_two_sites_that_are_promoted_at_once_none_is_followed() -> None:
    sites = Sites(link("a-b", "a", "b"), link("a-c", "a", "c"), link("a-d", "a", "d"))
    sites.settle()
    sites.down.add("a")
    sites.promote("a-b", "b")
    sites.promote("a-c", "c")
    assert sites.due("d") == []


def test_s_e_a_site_that_is_left_takes_no_writes_before_it_knows_why() -> None:
    """The site reaches the standby that followed the promoted site, but not the promoted site."""
    sites = two_standbys()
    sites.down.add("a")
    sites.promote("a-b", "b")
    sites.settle()
    sites.down.clear()
    sites.cut.add(frozenset("ab"))
    sites.settle()
    assert sites.active("a-c")["a"] == "a"
    assert sites.stores["a"]["a-c"].phase == LinkPhase.FENCED
    assert sites.writers() == {"b"}
    sites.cut.clear()
    sites.settle()
    assert set(sites.stores["a"]) == {"a-b"}
    assert sites.writers() == {"b"}


def test_s_f_a_link_that_was_deleted_does_not_come_back() -> None:
    """It is deleted at the promoted site while the standby does not answer."""
    sites = two_standbys()
    sites.down.add("a")
    sites.promote("a-b", "b")
    sites.settle()
    sites.down.add("c")
    gone = sites.stores["b"].pop("a-c")
    for record in without_standby(sites.stores["b"].values(), gone, site="b", now_ms=1):
        change = Change(step=Step.STORE, record=record, instead_of=sites.stores["b"][record.name], reason="")
        sites.make("b", change)
    sites.down.discard("c")
    sites.settle()
    assert set(sites.stores["b"]) == {"a-b"}


def test_a_promoted_site_does_not_wait_for_a_standby_that_has_just_followed_it() -> None:
    sites = two_standbys(sync=SyncPolicy.BLOCK.value)
    sites.down.add("a")
    sites.promote("a-b", "b")
    sites.settle()
    record = sites.stores["b"]["a-c"]
    assert (record.sync_policy, record.sync_policy_to_restore) == (SyncPolicy.DEGRADE.value, SyncPolicy.BLOCK.value)


def test_four_sites_follow_one_promotion_after_another() -> None:
    sites = Sites(link("a-b", "a", "b"), link("a-c", "a", "c"), link("a-d", "a", "d"))
    sites.settle()
    for name, site in (("a-b", "b"), ("a-c", "c"), ("a-d", "d")):
        down = set(sites.writers())
        sites.down |= down
        sites.promote(name, site)
        sites.settle()
        sites.down -= down
        sites.settle()
        assert sites.writers() == {site}
        for links in sites.stores.values():
            assert {one.active_site for one in links.values()} == {site}
        assert len(sites.stores[site]) == 3
