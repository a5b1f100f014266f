"""Topics of every `compression.type` on their way from Apache Kafka: the copy has the config, the
codec and the bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import (
    create_topic,
    produce_batches,
    read_partition,
    start_translate_mirror,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.processes import Processes
from wire.batches.record_batch import Compression

pytestmark = [pytest.mark.integration, pytest.mark.java]

CONFIGS: dict[str, dict[str, str]] = {
    "producer": {},
    "uncompressed": {},
    "gzip": {"compression.gzip.level": "9"},
    "snappy": {},
    "lz4": {"compression.lz4.level": "12"},
    "zstd": {"compression.zstd.level": "7"},
}


def configs_of(bootstrap_servers: str, topic: str) -> dict[str, str]:
    """The topic's configs as a broker describes them."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    answer = admin.describe_configs([resource])[resource].result(120)
    return {name: str(entry.value) for name, entry in answer.items()}


async def test_copies_keep_the_compression_type_and_are_not_compressed_again(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source = apache_kafka.bootstrap_servers
    target = (await start_lone_site(processes, tmp_path, "site")).bootstrap
    for kind, more in CONFIGS.items():
        await create_topic(source, f"kept-{kind}", 1, {"compression.type": kind, **more})
        await produce_batches(source, f"kept-{kind}", 0, 0, 10)
    settings = {"whitelist": "kept-.*", "topic.naming.policy": "identity"}
    start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    for kind, more in CONFIGS.items():
        topic = f"kept-{kind}"
        await wait_equal(source, target, topic, 1, target_topic=topic)
        await produce_batches(source, topic, 0, 10, 10, compression=Compression.ZSTD)
        await wait_equal(source, target, topic, 1, target_topic=topic)
        original, copy = await read_partition(source, topic, 0), await read_partition(target, topic, 0)
        assert copy.compressed_batches == original.compressed_batches
        assert {codec for codec, _ in copy.batches} == expected_codecs(kind)
        configs = configs_of(target, topic)
        assert {name: configs[name] for name in ("compression.type", *more)} == {"compression.type": kind, **more}


def expected_codecs(kind: str) -> set[int]:
    """The codecs of the topic, or those of the producers if the topic leaves the choice to them."""
    if kind == "producer":
        return {Compression.NONE, Compression.ZSTD}
    return {Compression.NONE if kind == "uncompressed" else Compression[kind.upper()]}
