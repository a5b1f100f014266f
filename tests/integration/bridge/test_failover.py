"""A bridge that knows both sites of a link follows a promotion in the middle of its clients' load,
and they notice nothing but time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.http_bridge import BridgeClient, Load
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration


@pytest.fixture
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SitesStarter]:
    found = SitesStarter(tmp_path_factory.mktemp("bridged-sites"))
    try:
        yield found
    finally:
        found.end_all()


def is_known(sites: EmbeddedSites, bridge: BridgeClient, path: str) -> bool:
    """Whether a topic is there. It asks again if b's broker could not reach a's in time, which
    happens on a busy machine.
    """
    while True:
        before = sites.unanswered_questions("b")
        if bridge.http.get(path).status_code == 200:
            return True
        if sites.unanswered_questions("b") == before:
            return False


def test_a_promotion_in_the_middle_of_load_loses_nothing_that_was_acknowledged(starter: SitesStarter) -> None:
    sites = starter("--bridge")
    url = sites.document["bridge"]["url"]
    bridge = BridgeClient(url)
    topic, group = bridge.new_topic(), f"g-{uuid.uuid4().hex}"
    instance = bridge.instance(group).subscribed(topic)
    for made in (f"t-{uuid.uuid4().hex}" for _ in range(10)):
        answer = bridge.http.post(f"{bridge.cluster}/topics", json={"topic_name": made})
        assert answer.status_code == 201, answer.text
        # whichever site's broker is asked next
        assert is_known(sites, bridge, f"{bridge.cluster}/topics/{made}/partitions")
        assert is_known(sites, bridge, f"/topics/{made}/partitions")
    with Load(url, topic) as load:
        load.wait_acknowledged(50)
        read = [record["value"] for record in instance.read_until(50)]
        ended = sites.command("failover", "a-b", "--to", "b", "--output", "json")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert json.loads(ended.stdout)["account"]["known_lost_records"] == 0
        load.wait_acknowledged(50)

    def has_read_all() -> bool:
        read.extend(
            record["value"] for record in instance.read()
        )  # some for the second time, if no commit was in between
        return set(read) >= set(load.places)

    eventually_sync(has_read_all)
    assert set(read) == set(load.places)
    received = librdkafka_consume(sites.bootstrap("b"), topic, len(load.places), group=f"g-{uuid.uuid4().hex}")
    in_log = {record.offset: int(record.value or b"") for record in received}
    assert {number: offset for offset, number in in_log.items()} == load.places
    instance.delete()
    bridge.http.close()
    sites.stop()
