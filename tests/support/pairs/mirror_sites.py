"""Two lone sites, a link between them and a mirror, each a process; and the checker that compares
their logs byte by byte.

A site's LINK listener is advertised through a proxy when one is given, so that faults reach every
byte of the mirror's fetches, or of its appends. The checker reads both logs raw with replica id -2,
past the sites' roles.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients.reader.single_fetches import fetch_at_leader, records_of
from runtime.retries import jittered_backoff
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.internal_topics import internal_topic_copies
from tests.support.pairs.many_lines import with_lines
from tests.support.pairs.mirror_calls import DESCRIBED_WITHIN_S, own_channel
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes, RunningProcess
from tests.support.processes.toxiproxy import Proxy, Toxiproxy
from wire.batches.record_batch import iterate_headers
from wire.client.client_errors import TRANSIENT
from wire.client.raw_client import KafkaClient, NewTopic
from wire.control import broker_pb2, controller_pb2, site_pb2, site_pb2_grpc
from wire.control.clients import BrokerControlChannels, ControllerClient
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from wire.protocol.messages.fetch_codec import PartitionFetched

LINK = "a-b"

CHECK_BYTES = 8 * 1024 * 1024

CAUGHT_UP_WITHIN_MS = 120_000

ADOPTED_WITHIN_S = 120

ANSWERED_WITHIN_MS = 60_000


@dataclass
class Site:
    """One site: a process and its addresses, which stay over restarts."""

    name: str
    process: RunningProcess
    client_port: int
    link_port: int
    grpc_port: int
    advertised_link: str
    lines: Sequence[Proxy] = ()
    """Of listeners beside LINK, one each."""

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.client_port}"

    async def wait_ready(self, starts: int) -> None:
        await self.process.wait_ready_async(lambda: self.process.log_text().count('"ready"') >= starts)

    async def restart(self) -> None:
        """Start the site again after a kill, and wait until it is ready."""
        starts = self.process.log_text().count('"ready"') + 1
        self.process.start()
        await self.wait_ready(starts)

    async def adopt(self, record: LinkRecord) -> None:
        async with own_channel(self.grpc_port) as channel:
            stub = site_pb2_grpc.SiteAgentStub(channel)  # type: ignore[no-untyped-call]
            await stub.AdoptLink(
                site_pb2.AdoptLinkRequest(record=record), wait_for_ready=True, timeout=ADOPTED_WITHIN_S
            )


@dataclass
class Pair:
    """Sites a and b, their link, and the mirrors started so far."""

    directory: Path
    processes: Processes
    source: Site
    target: Site
    record: LinkRecord
    proxy: Proxy | None
    target_proxy: Proxy | None = None
    mirrors: list[RunningProcess] = field(default_factory=list)

    async def turn(self, *, epoch: int, active: str, phase: int = LinkPhase.MIRRORING) -> None:
        """Give both sites a new record of the link; the source last, if it lives."""
        self.record.epoch, self.record.active_site, self.record.phase = epoch, active, phase  # type: ignore[assignment]
        await self.target.adopt(self.record)
        if self.source.process.is_running:
            await self.source.adopt(self.record)

    async def make_sync(self, policy: str, timeout_ms: int) -> None:
        """Make this link and later ones synchronous: the source waits for the target."""
        self.record.sync_policy, self.record.sync_timeout_ms = policy, timeout_ms
        await self.turn(epoch=self.record.epoch + 1, active=self.record.active_site)

    async def add_link(self, topic: str) -> None:
        """A link named as its topic, the one that it carries."""
        record = LinkRecord()
        record.CopyFrom(self.record)
        record.name = topic
        record.topic_whitelist[:] = [topic]
        await self.source.adopt(record)
        await self.target.adopt(record)

    def reached_by_line(self, number: int) -> dict[str, str]:
        """Settings of a mirror that reaches each site that has lines by this one."""
        ends = (("source", self.source), ("target", self.target))
        return {f"{end}.bootstrap.servers": site.lines[number].address for end, site in ends if site.lines}

    def start_mirror(self, settings: Mapping[str, str] | None = None) -> RunningProcess:
        """A mirror process; not yet ready."""
        properties = {
            "link.name": LINK,
            "site.agents": f"{LOOPBACK}:{self.target.grpc_port}",
            "antipode.metrics.listener": f"{LOOPBACK}:0",
            "antipode.grpc.listener": f"{LOOPBACK}:0",
            "topics.refresh.interval.ms": "300",
            "group.sync.interval.ms": "300",
            "config.sync.interval.ms": "300",
        } | dict(settings or {})
        command = [
            sys.executable,
            "-m",
            "tests.support.pairs.lone_mirror",
            *(f"{k}={v}" for k, v in properties.items()),
        ]
        home = self.directory / f"mirror-{len(self.mirrors)}"
        home.mkdir()
        mirror = self.processes.run_command(home.name, command, home, _environment())
        self.mirrors.append(mirror)
        return mirror

    async def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """A topic at the source. Retention is off unless asked for: the tests' batches are dated
        1970, and brokers look after 30 s.
        """
        async with KafkaClient(self.source.bootstrap) as client:
            given = {"retention.ms": "-1", **(configs or {})}
            new = NewTopic(name=topic, partition_count=partitions, replication_factor=1, configs=given)
            (outcome,) = await client.create_topics([new])
            assert not outcome.error_code, outcome

    async def grow(self, topic: str, partitions: int) -> None:
        """Add partitions at the source."""
        grown = controller_pb2.NewPartitions(name=topic, total_count=partitions)
        controller = ControllerClient(lambda: [f"{LOOPBACK}:{self.source.grpc_port}"])
        await controller.create_partitions(controller_pb2.CreatePartitionsRequest(topics=[grown]))
        await controller.close()

    async def alter(self, site: Site, topic: str, configs: Mapping[str, str]) -> None:
        """Set configs of a topic at one site."""
        change = controller_pb2.TopicConfigChange(name=topic, set=dict(configs))
        controller = ControllerClient(lambda: [f"{LOOPBACK}:{site.grpc_port}"])
        await controller.alter_topic_configs(controller_pb2.AlterTopicConfigsRequest(changes=[change]))
        await controller.close()

    async def describe_partitions(self, site: Site, link: str = LINK) -> Sequence[broker_pb2.PartitionDescription]:
        """The description of a link's partitions that a site's broker gives over gRPC."""
        channels = BrokerControlChannels()
        stub: Any = channels.stub(f"{LOOPBACK}:{site.grpc_port}")
        reply: broker_pb2.DescribePartitionsReply = await stub.DescribePartitions(
            broker_pb2.DescribePartitionsRequest(link=link),
            # Channels to one address share their connection, and one that is just being closed may
            # end the call of the next.
            wait_for_ready=True,
            timeout=DESCRIBED_WITHIN_S,
        )
        await channels.close()
        return list(reply.partitions)

    async def produce(self, topic: str, partition: int, batches: int, *, records: int = 10, size: int = 100) -> None:
        """Batches of random-looking records to the source."""
        async with KafkaClient(self.source.bootstrap) as client:
            for number in range(batches):
                values = [
                    f"{topic}-{partition}-{number}-{index}-".encode().ljust(size, b"x") for index in range(records)
                ]
                await client.produce(topic, partition, batch(values))

    async def ends(self, site: Site, topic: str, partitions: int) -> list[tuple[int, int]]:
        """Log start and end of each partition. Raises AssertionError while the topic is missing or
        has no leader.
        """
        async with KafkaClient(site.bootstrap, site_local=True, retry_budget_ms=5000) as client:
            try:
                metadata = await client.metadata([topic])
                assert topic in metadata.topics, f"{topic} not at {site.name}"
                assert len(metadata.topics[topic].partitions) >= partitions, metadata.topics[topic]
                keys = [(topic, index) for index in range(partitions)]
                first = await client.offsets_at(keys, EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
                last = await client.offsets_at(keys, LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
            except TRANSIENT as error:
                raise AssertionError(f"{topic} at {site.name}: {error}") from error
            return [(first[key], last[key]) for key in keys]

    async def check_prefix(self, topic: str, partitions: int) -> list[tuple[int, int]]:
        """M1: every byte of the target's log is the source's at the same offset. Returns (source
        end, target end) each.
        """
        target_ends = await self.ends(self.target, topic, partitions)
        source_ends = await self.ends(self.source, topic, partitions)
        for index in range(partitions):
            (start, end), (source_start, source_end) = target_ends[index], source_ends[index]
            assert end <= source_end, f"{topic}-{index}: the target ends at {end}, the source at {source_end}"
            first = max(start, source_start)
            theirs = await raw_log(self.source, topic, index, first, end)
            ours = await raw_log(self.target, topic, index, first, end)
            assert ours == theirs, f"{topic}-{index} differs between {first} and {end}: {_difference(ours, theirs)}"
        return [(source_end, end) for (_, source_end), (_, end) in zip(source_ends, target_ends, strict=True)]

    async def caught_up_once(self, topic: str, partitions: int = 1, *, within_ms: float = CAUGHT_UP_WITHIN_MS) -> None:
        """Wait until the target has all that the source has now, while more may come."""
        wanted = [end for _, end in await self.ends(self.source, topic, partitions)]

        async def has_it() -> bool:
            ours = [end for _, end in await self.ends(self.target, topic, partitions)]
            assert all(end >= goal for end, goal in zip(ours, wanted, strict=True)), (ours, wanted)
            return True

        await eventually(has_it, within_ms)

    async def caught_up(self, topic: str, partitions: int = 1, *, within_ms: float = CAUGHT_UP_WITHIN_MS) -> None:
        """Wait until the target has everything, then compare it all."""

        async def is_equal() -> bool:
            theirs = await self.ends(self.source, topic, partitions)
            ours = await self.ends(self.target, topic, partitions)
            assert [end for _, end in theirs] == [end for _, end in ours], (theirs, ours)
            return True

        await eventually(is_equal, within_ms)
        await self.check_prefix(topic, partitions)


async def start_pair(
    processes: Processes,
    directory: Path,
    *,
    toxiproxy: Toxiproxy | None = None,
    target_toxiproxy: Toxiproxy | None = None,
    whitelist: Sequence[str] = (".*",),
    blacklist: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    lines: int = 0,
) -> Pair:
    """Two sites with a link a -> b at epoch 1, no mirror yet. A site with a toxiproxy has so many
    `lines` beside.
    """
    ports = free_ports(6)
    source, proxy = _start_site(processes, directory, "a", 1, ports[:3], toxiproxy, settings, lines)
    target, target_proxy = _start_site(processes, directory, "b", 2, ports[3:], target_toxiproxy, settings, lines)
    for site in (source, target):
        await site.wait_ready(1)
    record = LinkRecord(
        name=LINK,
        source_site="a",
        target_site="b",
        mode="exact",
        epoch=1,
        active_site="a",
        phase=LinkPhase.MIRRORING,
        topic_whitelist=whitelist,
        topic_blacklist=blacklist,
        group_whitelist=[".*"],
        is_routed=True,
        sites={
            "a": LinkSite(bootstrap_servers=source.advertised_link, agents=[f"{LOOPBACK}:{source.grpc_port}"]),
            "b": LinkSite(bootstrap_servers=target.advertised_link, agents=[f"{LOOPBACK}:{target.grpc_port}"]),
        },
    )
    await source.adopt(record)
    await target.adopt(record)
    return Pair(directory, processes, source, target, record, proxy, target_proxy)


async def start_struck_pair(
    end: str,
    processes: Processes,
    directory: Path,
    toxiproxy: Toxiproxy,
    *,
    whitelist: Sequence[str] = (".*",),
    lines: int = 0,
) -> Pair:
    """A pair with a proxy before one end of the mirror ("source" or "target") or "both"."""
    return await start_pair(
        processes,
        directory,
        toxiproxy=None if end == "target" else toxiproxy,
        target_toxiproxy=None if end == "source" else toxiproxy,
        whitelist=whitelist,
        lines=lines,
    )


async def raw_log(site: Site, topic: str, partition: int, first: int, end: int) -> bytes:
    """The bytes of all batches from `first` up to `end`, as they lie in the log."""
    found = bytearray()
    place = (topic, partition)
    async with KafkaClient(site.bootstrap, site_local=True) as client:
        offset = first
        while offset < end:
            retrying = jittered_backoff(retry_on=TRANSIENT, budget_ms=ANSWERED_WITHIN_MS)
            fetched: PartitionFetched = await retrying(
                fetch_at_leader, client, place, offset, max_bytes=CHECK_BYTES, replica_id=DEBUGGING_CONSUMER
            )
            records = records_of(fetched)
            before = offset
            for position, header in iterate_headers(records):
                if header.base_offset >= end:
                    break
                found += records[position : position + header.size_bytes]
                offset = header.next_offset
            assert offset > before, f"nothing at {offset} of {topic}-{partition} at {site.name}"
    return bytes(found)


async def start_lone_site(
    processes: Processes, directory: Path, name: str, *, toxiproxy: Toxiproxy | None = None, lines: int = 0
) -> Site:
    """One Antipode site without a link, ready; with a toxiproxy, so many `lines` to it."""
    site, _ = _start_site(processes, directory, name, 1, free_ports(3), toxiproxy, lines=lines)
    await site.wait_ready(1)
    return site


def _start_site(
    processes: Processes,
    directory: Path,
    name: str,
    number: int,
    ports: Sequence[int],
    toxiproxy: Toxiproxy | None,
    settings: Mapping[str, str] | None = None,
    lines: int = 0,
) -> tuple[Site, Proxy | None]:
    client_port, link_port, grpc_port = ports
    proxy = toxiproxy.create(f"link-{name}", f"{LOOPBACK}:{link_port}") if toxiproxy is not None else None
    advertised = f"{LOOPBACK}:{link_port}" if proxy is None else proxy.address
    home = directory / name
    home.mkdir()
    properties = {
        "node.id": str(number * 1000 + 1),
        "antipode.site.name": name,
        "antipode.site.number": str(number),
        "listeners": f"CLIENT://{LOOPBACK}:{client_port},LINK://{LOOPBACK}:{link_port}",
        "advertised.listeners": f"CLIENT://{LOOPBACK}:{client_port},LINK://{advertised}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,LINK:PLAINTEXT",
        "antipode.grpc.listener": f"{LOOPBACK}:{grpc_port}",
        "log.dirs": str(home / "logs"),
        "zookeeper.connect": "unused:2181",
        **internal_topic_copies(1),
        "offsets.topic.num.partitions": "4",
    } | dict(settings or {})
    line_proxies: list[Proxy] = []
    if toxiproxy is not None:
        properties, line_proxies = with_lines(properties, toxiproxy, name, lines)
    command = [sys.executable, "-m", "tests.support.pairs.lone_site", *(f"{k}={v}" for k, v in properties.items())]
    process = processes.run_command(f"site-{name}", command, home, _environment())
    return Site(name, process, client_port, link_port, grpc_port, advertised, line_proxies), proxy


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}


def _difference(ours: bytes, theirs: bytes) -> str:
    position = next(
        (i for i, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), min(len(ours), len(theirs))
    )
    return f"{len(ours)} and {len(theirs)} bytes, first difference at byte {position}"
