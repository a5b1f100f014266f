"""The HTTP bridge when its site dies or stalls.

Promised: after an unplanned failover the new site has every record that was acknowledged over HTTP
and had reached the standby, and it answers the requests that were waiting. While Kafka stalls, the
bridge's memory stays bounded and every request gets a correct answer.
"""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.embedded_sites import SitesStarter
from tests.support.embedded.http_bridge import JSON_V2, BridgeClient, HttpBridge, Load
from tests.support.eventually import eventually_sync
from tests.support.pairs.site_comparison import caught_up
from tests.support.processes.processes import Processes

pytestmark = pytest.mark.chaos

MIB = 1024 * 1024


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[SitesStarter]:
    found = SitesStarter(tmp_path)
    try:
        yield found
    finally:
        found.end_all()


@pytest.mark.long
async def test_requests_that_wait_for_a_killed_site_go_through_at_the_other(starter: SitesStarter) -> None:
    sites = starter("--bridge")
    url = sites.document["bridge"]["url"]
    bridge = BridgeClient(url)
    topic = bridge.new_topic()
    with Load(url, topic) as before:
        before.wait_acknowledged(100)
    await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    instance = bridge.instance("survivors").subscribed(topic)
    read = [record["value"] for record in instance.read_until(len(before.places))]
    assert sorted(read) == sorted(before.places)
    sites.broker("a").kill()
    sites.zookeeper("a").kill()
    with Load(url, topic, first=len(before.places)) as after:
        ended = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down", "--output", "json")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        after.wait_acknowledged(100)
    places = {**before.places, **after.places}
    received = librdkafka_consume(sites.bootstrap("b"), topic, len(places), group="check")
    assert {int(record.value or b""): record.offset for record in received} == places
    seen: set[int] = set()
    eventually_sync(
        lambda: seen.update(record["value"] for record in instance.read()) or set(after.places) <= seen, 60_000
    )
    bridge.http.close()


@pytest.mark.long
def test_memory_stays_bounded_while_a_broker_stalls(
    starter: SitesStarter, processes: Processes, tmp_path: Path
) -> None:
    sites = starter("--sites", "a", "--no-link", "--no-proxy")
    bounds = {"producer_buffer_memory": str(8 * MIB), "antipode_requests_max_bytes": str(32 * MIB)}
    bridge = HttpBridge(processes, tmp_path / "bridge", sites.bootstrap("a"), **bounds)
    topic = bridge.new_topic()
    body = json.dumps({"records": [{"value": "x" * 100_000}] * 10}).encode()
    bridge.produce(topic, [{"value": "warm"}] * 10)
    memory = psutil.Process(bridge.process.pid)
    resident_before = memory.memory_info().rss

    def send(_: int) -> tuple[int, list[int]]:
        client = BridgeClient(bridge.url)
        with client.http:
            answer = client.http.post(f"/topics/{topic}", content=body, headers={"content-type": JSON_V2})
        offsets = [item["offset"] for item in answer.json().get("offsets", [])]
        return answer.status_code, offsets

    broker = sites.broker("a")
    broker.pause()
    try:
        with concurrent.futures.ThreadPoolExecutor(100) as threads:
            sending = [threads.submit(send, number) for number in range(100)]
            eventually_sync(lambda: sum(future.done() for future in sending) >= 50)
            watched_until = time.monotonic() + 1
            peak = 0
            while time.monotonic() < watched_until:
                peak = max(peak, memory.memory_info().rss)
            broker.resume()
            outcomes = [future.result() for future in sending]
    finally:
        broker.resume()
    statuses = Counter(status for status, _ in outcomes)
    assert set(statuses) == {200, 429}, statuses
    assert peak - resident_before < 160 * MIB, f"{(peak - resident_before) / MIB:.0f} MiB more than before"
    offsets = sorted(offset for _, found in outcomes for offset in found)
    assert offsets == list(range(10, 10 + 10 * statuses[200]))
    assert bridge.figure("bodies_bytes") == bridge.figure("unacknowledged_bytes") == 0
    bridge.http.close()
