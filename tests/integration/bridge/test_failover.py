"""A bridge that knows both sites of a link follows a promotion in the middle of its clients' load, and they notice nothing but time."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Self

import pytest

from tests.support.embedded_sites import SitesStarter
from tests.support.eventually import eventually_sync
from tests.support.http_bridge import BridgeClient
from tests.support.kafka_clients import librdkafka_consume

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

RECORDS_MAX = 100_000


@pytest.fixture
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SitesStarter]:
    found = SitesStarter(tmp_path_factory.mktemp("bridged-sites"))
    try:
        yield found
    finally:
        found.end_all()


class Load:
    """Records sent one request after another, each with a number; what was acknowledged where."""

    def __init__(self, url: str, topic: str) -> None:
        self.places: dict[int, int] = {}
        self.failures: list[str] = []
        self._url = url
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_acknowledged(self, more: int) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.places) + more
        eventually_sync(lambda: len(self.places) >= goal or self.failures, 60_000)
        assert not self.failures, self.failures

    def _send(self) -> None:
        client = BridgeClient(self._url)
        with client.http:
            for number in range(RECORDS_MAX):
                if self._is_over.is_set():
                    return
                try:
                    self.places[number] = client.produce(self._topic, [{"value": number}])[0]["offset"]
                except AssertionError as error:
                    self.failures.append(str(error))
                    return


def test_a_promotion_in_the_middle_of_load_loses_nothing_that_was_acknowledged(starter: SitesStarter) -> None:
    sites = starter("--bridge")
    url = sites.document["bridge"]["url"]
    bridge = BridgeClient(url)
    topic, group = bridge.new_topic(), f"g-{uuid.uuid4().hex}"
    instance = bridge.instance(group).subscribed(topic)
    with Load(url, topic) as load:
        load.wait_acknowledged(50)
        read = [record["value"] for record in instance.read_until(50)]
        ended = sites.command("failover", "a-b", "--to", "b", "--output", "json")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert json.loads(ended.stdout)["account"]["known_lost_records"] == 0
        load.wait_acknowledged(50)
    read += [record["value"] for record in instance.read_until(len(load.places) - len(set(read)))]
    assert set(read) == set(load.places)
    received = librdkafka_consume(sites.bootstrap("b"), topic, len(load.places), group=f"g-{uuid.uuid4().hex}")
    in_log = {record.offset: int(record.value or b"") for record in received}
    assert {number: offset for offset, number in in_log.items()} == load.places
    instance.delete()
    bridge.http.close()
    sites.stop()
