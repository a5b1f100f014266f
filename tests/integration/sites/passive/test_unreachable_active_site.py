"""An active site that the passive one cannot reach: each change gets one clear error within its
time and changes nothing, and the copy answers reads.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException

from tests.support.embedded.passive_site import PassiveSite, refusal
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


def test_while_the_active_site_cannot_be_reached_changes_are_refused_and_reads_are_answered_by_the_copy(
    passive: PassiveSite, topic: str
) -> None:
    passive.alter(topic, "retention.ms", "4321000")
    eventually_sync(lambda: passive.copy_configs(topic) == {"retention.ms": "4321000"})
    with passive.sites.cut_off():
        for act in (
            lambda: passive.create("refused"),
            lambda: passive.grow(topic, 2),
            lambda: passive.alter(topic, "retention.ms", "1000"),
        ):
            name, text = refusal(act)
            assert name == "POLICY_VIOLATION"
            assert "carried by link a-b, whose active site is a" in text
            assert "could not reach it" in text
        assert refusal(lambda: passive.delete(topic))[0] == "POLICY_VIOLATION"
        assert passive.described(topic, "retention.ms") == "4321000"
    assert (passive.partitions("a", "refused"), passive.partitions("b", "refused")) == (0, 0)
    assert (passive.partitions("a", topic), passive.partitions("b", topic)) == (1, 1)
    eventually_sync(lambda: _grows(passive, topic))


def _grows(passive: PassiveSite, topic: str) -> bool:
    try:
        passive.grow(topic, 2)
    except KafkaException:  # also if a did so before, and b did not get the report in time
        return passive.partitions("a", topic) == 2
    return True


def test_an_active_site_that_swallows_every_byte_is_answered_for_in_time(passive: PassiveSite, topic: str) -> None:
    network = passive.sites.network
    network.cut(network.selected(), is_silent=True)
    try:
        assert refusal(lambda: passive.grow(topic, 2))[0] == "POLICY_VIOLATION"
        assert passive.described(topic, "retention.ms") == "604800000"
    finally:
        network.heal()
    eventually_sync(lambda: _grows(passive, topic))
