"""Have a real Apache Kafka judge the table of mutated batches: `python -m tests.golden.records`
writes `verdicts.json` anew.

Each batch goes to a partition of its own, so the log end shows whether it was stored. The program
reads the stored batches back: it notes the header fields that a broker may change, and whether the
records are the same bytes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.apache_kafka import ApacheKafkaServer
from deploy.jar_sets import KAFKA
from tests.golden.records import VERDICTS, stored_header
from tests.support.clients.raw_client import RawClient
from tests.support.disks.mutated_batches import CASES, TOPICS, Case, at_time
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import free_ports
from wire.batches.record_batch import HEADER_SIZE, read_header
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch

START_WITHIN_MS = 60_000
PRODUCE_VERSION = 9
FETCH_VERSION = 12


def main() -> int:
    """Write the verdicts."""
    with tempfile.TemporaryDirectory() as scratch:
        port, controller_port = free_ports(2)
        server = ApacheKafkaServer(
            name="judge",
            directory=Path(scratch),
            port=port,
            controller_port=controller_port,
            settings={"message.max.bytes": "10000000"},
        )
        server.format()
        child = server.child()
        child.start()
        try:
            eventually_sync(server.is_serving, START_WITHIN_MS)
            verdicts = dict(_judged(port))
        finally:
            child.stop()
    content = {"judge": f"Apache Kafka {KAFKA.version}", "verdicts": verdicts}
    VERDICTS.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(verdicts)} verdicts in {VERDICTS.name}")
    return 0


def _judged(port: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    places: dict[str, int] = dict.fromkeys(TOPICS, 0)
    with RawClient(port) as client:
        for topic, configs in TOPICS.items():
            _create(client, topic, sum(case.topic == topic for case in CASES.values()), configs)
        for case in CASES.values():
            partition = places[case.topic]
            places[case.topic] += 1
            yield case.name, _judge(client, case, partition)


def _create(client: RawClient, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    created = client.call(
        19,
        7,
        {
            "topics": [
                {
                    "name": topic,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": key, "value": value} for key, value in configs.items()],
                }
            ]
        },
    )
    if created.topics[0].error_code != 0:
        raise SystemExit(f"topic {topic}: {created.topics[0]}")
    wanted = TopicToFetch(topic, None, [PartitionToFetch(index, 0, 1) for index in range(partitions)])

    def is_led() -> bool:
        fetched = client.fetch(FetchRequest([wanted], max_wait_ms=0, min_bytes=0), version=FETCH_VERSION)
        return not any(partition.error_code for partition in fetched.topics[0].partitions)

    eventually_sync(is_led, START_WITHIN_MS)


def _judge(client: RawClient, case: Case, partition: int) -> Mapping[str, Any]:
    now_ms = int(time.time() * 1000)
    records = at_time(case.records, now_ms) if case.is_near_now else case.records
    client.send_produce(case.topic, records, partition=partition, version=PRODUCE_VERSION)
    produced = client.produced(PRODUCE_VERSION).topics[0].partitions[0]
    verdict: dict[str, Any] = {"error_code": int(produced.error_code)}
    if produced.error_code:
        verdict["message"] = produced.error_message
        verdict["record_errors"] = [[error.batch_index, error.message] for error in produced.record_errors]
    else:
        verdict["base_offset"] = produced.base_offset
    topic = TopicToFetch(case.topic, None, [PartitionToFetch(partition, 0, 20_000_000)])
    fetched = client.fetch(FetchRequest([topic], max_wait_ms=0, min_bytes=0), version=FETCH_VERSION)
    answer = fetched.topics[0].partitions[0]
    verdict["log_end_offset"] = answer.high_watermark
    if answer.records:
        verdict["stored"] = _stored(bytes(answer.records), records, now_ms if case.is_near_now else None)
    return verdict


def _stored(stored: bytes, sent: bytes, now_ms: int | None) -> Mapping[str, Any]:
    fields = stored_header(read_header(stored), now_ms)
    return {**fields, "same_records": stored[HEADER_SIZE:] == sent[HEADER_SIZE:]}


if __name__ == "__main__":
    sys.exit(main())
