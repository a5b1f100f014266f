"""F10: topics are created while the sites change places. A change that was confirmed to a client is
at both sites afterwards, the same at each.
"""

from __future__ import annotations

import json
import threading
from typing import Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import site_client

pytestmark = pytest.mark.integration

BETWEEN_MOVES = 3
"""Topics that are made before the sites change places again."""


class Changes:
    """An operator who makes one topic after the other, at whichever broker the client asks. A
    creation that fails is repeated.
    """

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.topics: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        """Wait until some more topics were confirmed."""
        wanted = len(self.topics) + BETWEEN_MOVES
        eventually_sync(lambda: len(self.topics) >= wanted)

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            if self._is_made(f"made-{number}"):
                self.topics.append(f"made-{number}")

    def _is_made(self, name: str) -> bool:
        """Whether the topic was confirmed before the end. A topic that exists confirms a creation
        whose response was lost.
        """
        while not self._is_over.is_set():
            try:
                self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return True
                continue
            return True
        return False


async def topic_ids(sites: EmbeddedSites, site: str) -> dict[str, bytes]:
    """The ids of the topics that the site itself has."""
    async with site_client(sites.bootstrap(site)) as client:
        return {name: topic.topic_id.bytes for name, topic in (await client.metadata()).topics.items()}


def moved(sites: EmbeddedSites, to: str) -> None:
    patient = ("--unavailability-max-ms", "60000", "--drain-timeout-ms", "120000")
    done = sites.command("switchover", LINK, "--to", to, *patient, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["account"]["known_lost_records"] == 0


async def test_f10_topics_that_are_made_during_moves_are_the_same_at_both_sites(start_sites: SitesStarter) -> None:
    sites = start_sites()
    with Changes(f"{sites.bootstrap('a')},{sites.bootstrap('b')}") as changes:
        for to in "ba":
            changes.wait_for_more()
            moved(sites, to)
        changes.wait_for_more()
    made = set(changes.topics)

    async def are_equal() -> bool:
        at_a, at_b = await topic_ids(sites, "a"), await topic_ids(sites, "b")
        assert made <= at_a.keys(), sorted(made - at_a.keys())
        assert {name: at_b.get(name) for name in made} == {name: at_a[name] for name in made}
        return True

    await eventually(are_equal)
    for name in sorted(made)[:10]:
        librdkafka_produce(sites.bootstrap("b"), name, [Record(value=b"written")], settings={"acks": "all"})
    sites.stop()
