"""Copies of topics that were deleted and created again at the active site: each topic is deleted
only by its own id, and an old copy is put away on request.
"""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.embedded.passive_site import DELETE_TOPICS, WITHIN_S, PassiveSite, refusal
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


def is_refused_as_ambiguous(passive: PassiveSite, topic: str) -> bool:
    assert refusal(lambda: passive.delete(topic))[0] in ("POLICY_VIOLATION", "UNKNOWN_TOPIC_OR_PART")
    ended = passive.sites.command("topics", "delete", topic, "--yes", "--bootstrap-server", passive.bootstrap)
    assert ended.returncode == 1
    return f"antipodelinksreseta-b--topic{topic};" in "".join(ended.stderr.split())  # long lines are folded


def test_a_topic_made_again_is_never_deleted_in_the_place_of_its_old_copy_which_is_put_away_when_asked(
    passive: PassiveSite, topic: str
) -> None:
    passive.make_again(topic)
    before = (passive.topic_id("a", topic), passive.topic_id("b", topic))
    eventually_sync(lambda: is_refused_as_ambiguous(passive, topic))
    assert (passive.topic_id("a", topic), passive.topic_id("b", topic)) == before
    eventually_sync(lambda: passive.reset(topic, "--dry-run")["outcome"] == "planned")
    assert passive.topic_id("b", topic) == before[1]
    assert passive.reset(topic, "--yes")["outcome"] == "put away"
    eventually_sync(lambda: passive.is_the_same(topic))
    assert passive.topic_id("a", topic) == before[0]

    def delete() -> None:
        if passive.partitions("a", topic):  # a former attempt may have been carried out
            passive.delete(topic)

    passive.asking_a(delete)
    assert passive.partitions("a", topic) == 0


def test_an_old_copy_is_deleted_by_its_id_through_the_passive_site(passive: PassiveSite, topic: str) -> None:
    passive.make_again(topic)
    live_id, copy_id = passive.topic_id("a", topic), passive.topic_id("b", topic)
    values = {"topics": [{"name": None, "topic_id": copy_id}], "timeout": timedelta(seconds=WITHIN_S)}

    def is_deleted() -> bool:
        with RawClient(passive.port("b")) as client:
            (result,) = client.call(DELETE_TOPICS, 6, values).responses
            return bool(result.error_code == ErrorCode.none)

    eventually_sync(is_deleted)
    eventually_sync(lambda: passive.is_the_same(topic))
    assert passive.topic_id("a", topic) == live_id


@pytest.mark.long
@pytest.mark.parametrize("victim", ["mirror", "broker", "broker while it is asked"])
def test_a_removed_copy_is_created_again_although_a_process_is_killed_in_between(
    passive: PassiveSite, topic: str, victim: str
) -> None:
    passive.make_again(topic)
    eventually_sync(lambda: passive.reset(topic, "--dry-run")["outcome"] == "planned")
    process = passive.sites.mirror if victim == "mirror" else passive.sites.broker("b")
    if victim == "broker while it is asked":
        asking = threading.Thread(target=lambda: passive.sites.command("links", "reset", "a-b", "-t", topic, "--yes"))
        asking.start()
        process.kill()
        asking.join()
    else:
        assert passive.reset(topic, "--yes")["outcome"] == "put away"
        process.kill()
    passive.sites.restart(process)

    def is_made_anew() -> bool:
        passive.sites.command("links", "reset", "a-b", "-t", topic, "--yes")  # refused once it is mirrored
        return passive.is_the_same(topic)

    eventually_sync(is_made_anew)
