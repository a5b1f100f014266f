"""Mirrors over a long line: 100 ms round trip and so many megabytes a second, between the source and everything that reads it.

The line is a toxiproxy in front of the source's listener, so the mirrors of both sides, which run at the target, fetch through it. What can
be had is the line's rate; the figure is the share of it that arrives, from the first records seen at the target to the last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from toxiproxy import Proxy, Toxiproxy

from bench import antipode, apache_kafka, librdkafka, mirror_maker
from bench.figures import Side
from bench.mirror import MirrorPair, stopped_mirror, watch_drain
from bench.payloads import payloads
from bench.plan import Plan
from bench.processes import metered
from bench.systems import STOP_TIMEOUT_MS, check_complete, create_topic, running
from deploy.ports import LOOPBACK, free_ports
from deploy.toxiproxy_server import ToxiproxyServer
from runtime.addresses import parse_host_port
from runtime.process import OperationalFailure

TOPIC = "far"
LINK = "link"
ROUND_TRIP_MS = 100
LINE_KB_PER_S = 25_000
RECORD_BYTES = 1_000
DRAIN_BYTES = 500e6
READY_WITHIN_S = 30
FETCH_BYTES = 16 * 1024 * 1024
SETTINGS = {
    "fetch.max.bytes": str(FETCH_BYTES),
    "max.partition.fetch.bytes": str(FETCH_BYTES // 4),
    "queue.byte.size": str(4 * FETCH_BYTES),
}
"""Of our mirror, as docs/running-two-sites.md says for a long line: more in a fetch than the line holds. MirrorMaker 2 has such fetches."""


def measure(plan: Plan) -> None:
    """The pairs one after the other; samples go to the plan."""
    for repeat in range(plan.repeats):
        for side in plan.sides:
            directory = plan.directory / f"mirror-far-{side}-{repeat}"
            with _antipode_pair(directory) if side is Side.ANTIPODE else _kafka_pair(directory) as (pair, line):
                _measure_pair(plan, pair, line)


@contextmanager
def _antipode_pair(directory: Path) -> Iterator[tuple[MirrorPair, Proxy]]:
    """Two sites of ours with their own toxiproxy; the mirror that came with them has been stopped."""
    with antipode.sites(directory, "--sites", "a,b") as environment:
        child = stopped_mirror(environment, SETTINGS)
        if environment.toxiproxy is None:
            raise OperationalFailure("the sites have no toxiproxy between them")
        name = next(proxy.name for proxy in environment.link("a-b").proxies if proxy.site == "a" and proxy.kind == LINK)
        line = _server(environment.toxiproxy.api).get_proxy(name)
        source, target = (environment.sites[site].bootstrap_servers for site in ("a", "b"))
        yield MirrorPair(side=Side.ANTIPODE, source=source, target=target, child=child, target_topic=str), line


@contextmanager
def _kafka_pair(directory: Path) -> Iterator[tuple[MirrorPair, Proxy]]:
    """Two Apache Kafkas, the source behind a proxy that it advertises, and MirrorMaker 2."""
    api_port, listen_port = free_ports(2)
    proxied = f"{LOOPBACK}:{listen_port}"
    with ExitStack() as stack:
        directory.mkdir(parents=True)
        toxiproxy = ToxiproxyServer(name="toxiproxy", directory=directory, port=api_port)
        stack.enter_context(running(toxiproxy.child(), toxiproxy.is_serving, within_s=READY_WITHIN_S))
        source = apache_kafka.server(
            directory / "a", name="kafka-a", settings={"advertised.listeners": f"PLAINTEXT://{proxied}"}
        )
        line = _server(f"{LOOPBACK}:{api_port}").create(
            upstream=f"{LOOPBACK}:{source.port}", name="line", listen=proxied
        )
        child = source.child()
        stack.enter_context(running(child, source.is_serving, within_s=apache_kafka.READY_WITHIN_S))
        target = stack.enter_context(apache_kafka.lone_broker(directory / "b", name="kafka-b")).bootstrap_servers
        mirror = mirror_maker.child(directory / "mirror-maker", proxied, target, (TOPIC,))
        pair = MirrorPair(
            side=Side.PEER, source=proxied, target=target, child=mirror, target_topic=mirror_maker.mirrored_topic
        )
        yield pair, line


def _server(api: str) -> Toxiproxy:
    address = parse_host_port(api)
    server = Toxiproxy()
    server.update_api_consumer(address.host, address.port)
    return server


def _measure_pair(plan: Plan, pair: MirrorPair, line: Proxy) -> None:
    count = plan.scaled(DRAIN_BYTES / RECORD_BYTES, least=1_000)
    plan.say(f"writing {count:,} records of 1 KB to the source of {pair.child.name}")
    create_topic(pair.source, TOPIC)
    librdkafka.produce(pair.source, TOPIC, payloads(RECORD_BYTES), count, {"acks": "1"})
    check_complete(pair.source, TOPIC, count)
    for stream in ("upstream", "downstream"):
        line.add_toxic(type="latency", stream=stream, attributes={"latency": ROUND_TRIP_MS // 2})
    line.add_toxic(type="bandwidth", stream="downstream", attributes={"rate": LINE_KB_PER_S})
    plan.say(f"starting {pair.child.name} behind the line")
    try:
        began = time.monotonic()
        pid = pair.child.start()
        with metered(pid) as usage:
            drain = asyncio.run(watch_drain(pair, pid, began, TOPIC, count))
        share = drain.mb_per_s / (LINE_KB_PER_S * 1024 / 1e6)
        values = {"mb_per_s": drain.mb_per_s, "line_share": share, "cpu_s_per_gb": drain.cpu_s_per_gb}
        plan.record("mirror-far", f"{ROUND_TRIP_MS} ms round trip", pair.side, usage, **values)
    finally:
        pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
