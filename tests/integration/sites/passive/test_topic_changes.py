"""Topics that a link carries, created, changed and deleted through the passive site: the active
site makes each change, and the mirror copies it back.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from tests.support.embedded.passive_site import WITHIN_S, PassiveSite, refusal
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


def test_a_topic_made_through_the_passive_site_is_made_at_the_active_one_and_mirrored(passive: PassiveSite) -> None:
    passive.create("orders", config={"retention.ms": "1234567"})
    assert passive.partitions("a", "orders") == 1
    assert passive.asking_a(lambda: passive.described("orders", "retention.ms")) == "1234567"
    eventually_sync(lambda: passive.partitions("b", "orders") == 1)
    eventually_sync(lambda: passive.copy_configs("orders") == {"retention.ms": "1234567"})


def test_a_refusal_by_the_active_site_reaches_the_client_unchanged(passive: PassiveSite, topic: str) -> None:
    assert refusal(lambda: passive.create(topic))[0] == "TOPIC_ALREADY_EXISTS"
    name, text = refusal(lambda: passive.create("wrong", config={"retention.ms": "soon"}))
    assert (name, "soon" in text, "retention.ms" in text) == ("INVALID_CONFIG", True, True)
    assert refusal(lambda: passive.delete("unheard-of"))[0] == "UNKNOWN_TOPIC_OR_PART"
    assert passive.partitions("a", "wrong") == 0


def test_a_topic_grown_through_the_passive_site_grows_at_both(passive: PassiveSite, topic: str) -> None:
    passive.grow(topic, 3)
    assert passive.partitions("a", topic) == 3
    eventually_sync(lambda: passive.partitions("b", topic) == 3)


def test_a_config_set_and_taken_off_through_the_passive_site_is_so_at_both(passive: PassiveSite, topic: str) -> None:
    passive.alter(topic, "retention.ms", "7654321")
    assert passive.asking_a(lambda: passive.described(topic, "retention.ms")) == "7654321"
    eventually_sync(lambda: passive.copy_configs(topic) == {"retention.ms": "7654321"})
    passive.alter(topic, "retention.ms", None)
    assert passive.asking_a(lambda: passive.described(topic, "retention.ms")) == "604800000"
    eventually_sync(lambda: passive.copy_configs(topic) == {})


def test_a_topic_deleted_through_the_passive_site_keeps_its_copy_until_it_is_deleted_again(
    passive: PassiveSite, topic: str
) -> None:
    passive.delete(topic)
    assert passive.partitions("a", topic) == 0
    assert passive.partitions("b", topic) == 1
    assert topic not in passive.asking_a(lambda: passive.admin.list_topics(timeout=30).topics)
    passive.delete(topic)
    assert passive.partitions("b", topic) == 0
    assert refusal(lambda: passive.delete(topic))[0] == "UNKNOWN_TOPIC_OR_PART"


def test_a_request_about_topics_of_both_sites_is_answered_by_both(passive: PassiveSite) -> None:
    names = ("home-mixed", "mixed")
    made = passive.admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=-1) for name in names])
    assert {name: made[name].result(WITHIN_S) for name in names} == dict.fromkeys(names)
    grown = passive.admin.create_partitions([NewPartitions(name, 2) for name in names])
    assert {name: grown[name].result(WITHIN_S) for name in names} == dict.fromkeys(names)
    assert [passive.partitions(site, name) for site, name in (("a", "mixed"), ("b", "home-mixed"))] == [2, 2]
    assert passive.partitions("a", "home-mixed") == 0
    entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry]) for name in names]
    for altered in passive.admin.incremental_alter_configs(resources).values():
        altered.result(WITHIN_S)
    described = passive.asking_a(lambda: passive.admin.describe_configs(resources))
    assert {found.result(WITHIN_S)["retention.ms"].value for found in described.values()} == {"5000"}
    deleted = passive.admin.delete_topics(list(names))
    assert {name: deleted[name].result(WITHIN_S) for name in names} == dict.fromkeys(names)
    assert (passive.partitions("a", "mixed"), passive.partitions("b", "home-mixed")) == (0, 0)
