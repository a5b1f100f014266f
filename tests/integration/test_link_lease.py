"""Two daemons of one translate link that they do not share, between real Apache Kafkas."""

from __future__ import annotations

from pathlib import Path

from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror, mirror_ports
from tests.support.pairs.translate_links import create_topic, produce_batches, start_translate_mirror, wait_equal
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.processes import Processes


async def test_of_two_mirrors_of_one_link_one_waits_and_takes_over_when_the_other_is_stopped_or_killed(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "twice", 2)
    settings = {"whitelist": "twice", "link.name": "twice", "max.partition.fetch.bytes": "5000"}
    first, second = (
        start_translate_mirror(processes, tmp_path, name, source, target, settings) for name in ("one", "two")
    )

    async def produce(begin: int) -> None:
        for partition in range(2):
            await produce_batches(source, "twice", partition, begin, 40)

    async def one_waits() -> str:
        states = [(await describe_mirror(mirror)).state for mirror in (first, second)]
        assert sorted(states) == ["MIRRORING", "WAITING"]
        return states[0]

    for begin in range(0, 200, 40):
        await produce(begin)
    await wait_equal(source, target, "twice", 2)
    if await eventually(one_waits) == "WAITING":
        first, second = second, first
    reason = (await describe_mirror(second)).reason
    assert f":{mirror_ports(first)['grpc']} carries the link" in reason
    first.pause()
    await produce(200)
    await wait_equal(source, target, "twice", 2)
    first.resume()
    await produce(240)
    await wait_equal(source, target, "twice", 2)
    await eventually(one_waits)
    second.kill()
    await produce(280)
    await wait_equal(source, target, "twice", 2)
