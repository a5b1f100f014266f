"""Records of a lost site are replayed to the active one: each once, after any interruption of the
command, and none of an uncommitted transaction.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.transactional_clients import WITHIN_S, read_values, transactional_producer
from tests.support.embedded.embedded_sites import FRONT_DOOR, REPOSITORY, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration

COMMON, TAIL, NEWER = 100, 20_000, 70
REPLAYED_BEFORE_THE_KILL = 2_000


def answered(sites: EmbeddedSites, *arguments: str) -> Any:
    done = sites.command(*arguments, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def in_transactions(bootstrap: str) -> None:
    """Produce a committed, an aborted and an open transaction."""
    producer = transactional_producer(bootstrap, "booking")
    for value, end in ((b"committed", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(TOPIC, value, b"key", partition=0, headers=[("trace", b"1")], timestamp=1_700_000_000_000)
        producer.flush(WITHIN_S)
        end(WITHIN_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=0)
    producer.flush(WITHIN_S)


async def with_an_entry(start_sites: SitesStarter) -> EmbeddedSites:
    """Site b is active, and site a has its own tail in quarantine."""
    sites = start_sites()
    await create_topic(sites)
    produce(sites, COMMON)
    assert await equal_ends(sites) == {(TOPIC, 0): COMMON}
    sites.mirror.stop()
    in_transactions(sites.bootstrap("a"))
    produce(sites, TAIL)
    broker = sites.broker("a")
    broker.kill()
    done = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down")
    assert done.returncode == 0, done.stdout + done.stderr
    produce(sites, NEWER, site="b")
    sites.restart(broker)
    sites.restart(sites.mirror)

    def is_reinstated() -> bool:
        done = sites.command("links", "reinstate", "a-b", "--yes", "--output", "json")
        return done.returncode == 0 and [one["outcome"] for one in json.loads(done.stdout)] == ["reinstated"]

    eventually_sync(is_reinstated)
    return sites


def log_end(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WITHIN_S)[1])
    finally:
        consumer.close()


def record_at(bootstrap: str, offset: int) -> Any:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        return eventually_sync(lambda: consumer.poll(1.0))
    finally:
        consumer.close()


def killed_in_the_middle(sites: EmbeddedSites, *arguments: str, ends_at: int) -> None:
    """Run a command until the active site's log is that long, then kill -9."""
    running = subprocess.Popen([*FRONT_DOOR, *arguments], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    try:
        eventually_sync(lambda: log_end(sites.bootstrap("b")) > ends_at)
    finally:
        running.kill()
        running.wait()


@pytest.mark.long
async def test_each_record_is_replayed_once_although_the_command_is_killed(start_sites: SitesStarter) -> None:
    sites = await with_an_entry(start_sites)
    given = ("quarantine", "replay", "--link", "a-b", "--bootstrap-server", sites.bootstrap("a"))
    given = (*given, "--to", sites.bootstrap("b"))
    (planned,) = answered(sites, *given, "--dry-run")
    assert (planned["replayed"], planned["present"]) == (TAIL + 1, 0)
    assert (planned["aborted"], planned["open"], planned["markers"]) == (1, 1, 2)
    before = log_end(sites.bootstrap("b"))
    assert before == COMMON + NEWER
    killed_in_the_middle(sites, *given, ends_at=before + REPLAYED_BEFORE_THE_KILL)
    (rest,) = answered(sites, *given)
    assert rest["replayed"] + rest["present"] == TAIL + 1
    assert rest["present"] >= REPLAYED_BEFORE_THE_KILL // 2
    assert rest["replayed"] > 0, "it was killed too late to prove anything"
    (again,) = answered(sites, *given)
    assert (again["replayed"], again["present"]) == (0, TAIL + 1)
    own = [f"{number}".encode() for number in range(COMMON)], [f"{number}".encode() for number in range(NEWER)]
    tail = [b"committed", *(f"{number}".encode() for number in range(TAIL))]
    assert read_values(sites.bootstrap("b"), TOPIC, 1)[0] == [*own[0], *own[1], *tail]
    committed = record_at(sites.bootstrap("b"), COMMON + NEWER)
    assert (committed.value(), committed.key(), committed.timestamp()[1]) == (b"committed", b"key", 1_700_000_000_000)
    headers = dict(committed.headers())
    assert headers["trace"] == b"1"
    assert (headers["antipode.origin.site"], headers["antipode.origin.offset"]) == (b"a", b"%d" % COMMON)
    assert headers["antipode.quarantine.entry"] == planned["name"].encode()
    sites.stop()
