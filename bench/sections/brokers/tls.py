"""TLS: the cost of producing, consuming, idle connections and mirroring when every byte is
encrypted.

One broker of each product has a plaintext and a TLS listener, and the same load uses them in turns.
Our plaintext figures of the same run show what encryption adds. Then it measures TLS connections
that stay idle, and a drain by two mirrors with both ends encrypted. Our mirror also logs in at both
ends; MirrorMaker 2 does not. `login_storm.py` measures the same brokers in a storm.
Certificates have keys on the curve P-256.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, memory, metered
from bench.peers import antipode, apache_kafka, mirror_maker
from bench.peers.systems import (
    BROKER_SETTINGS,
    PARTITION_COUNT,
    STOP_TIMEOUT_MS,
    MeasuredBroker,
    check_complete,
    create_topic,
    delete_topic_and_files,
    running,
)
from bench.sections.mirrors.mirror import DRAINED, RECORD_BYTES, MirrorPair, stopped_mirror, watch_drain
from cli.credentials.authority import PRIVATE, load_authority, make_authority, save_authority, write_file
from cli.embedding.embedded import ENVIRONMENT_FILE
from deploy.apache_kafka import SERVER_JVM, ApacheKafkaServer
from deploy.ports import LOOPBACK, free_ports
from runtime.addresses import parse_host_port
from runtime.configuration import read_properties
from runtime.process import OperationalFailure
from wire.client.security import load_security, secure_clients

LOAD_BYTES: Final = 1e9
DRAIN_BYTES: Final = 1e9
IDLE_CONNECTIONS: Final = 5_000
DESCRIPTORS_SPARE: Final = 200
PLAINTEXT, ENCRYPTED = "plaintext", "TLS"
AUTHORITY, IDENTITY = "ca.pem", "broker.pem"
USER, PASSWORD = "bench", "of the bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """A broker and its two listeners."""

    broker: MeasuredBroker
    encrypted: str

    def address(self, kind: str) -> str:
        """The listener of this kind."""
        return self.encrypted if kind == ENCRYPTED else self.broker.bootstrap_servers


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredPair:
    """A pair whose mirror uses TLS at both ends, and librdkafka's options for the load."""

    pair: MirrorPair
    settings: Mapping[str, str]


def measure(plan: Plan) -> None:
    """Measure all cases, and record the samples in the plan."""
    certificates = make_certificates(plan)
    with ExitStack() as started:
        brokers = [started.enter_context(broker_with_listeners(plan, side, certificates)) for side in plan.sides]
        for repeat in range(plan.repeats):
            for kind in (PLAINTEXT, ENCRYPTED):
                for listeners in brokers:
                    _throughput(plan, listeners, kind, certificates, f"tls-{kind.lower()}-{repeat}")
    for side in plan.sides:
        with broker_with_listeners(plan, side, certificates, name="idle") as listeners:
            _idle_connections(plan, listeners, certificates)
    for side in plan.sides:
        pair_of_side = _antipode_pair if side is Side.ANTIPODE else _kafka_pair
        with pair_of_side(plan.directory / f"tls-mirror-{side}", certificates) as secured:
            _drain(plan, secured)


def make_certificates(plan: Plan) -> Path:
    """The directory with the authority and the brokers' key and certificate."""
    certificates = plan.directory / "tls-certificates"
    if not certificates.exists():
        save_authority(make_authority("bench"), certificates)
        identity = load_authority(certificates).issue(common_name="broker", uris=[], hosts=(LOOPBACK,))
        write_file(certificates / IDENTITY, identity, mode=PRIVATE)
    return certificates


def broker_with_listeners(
    plan: Plan, side: Side, certificates: Path, *, name: str = "load", has_logins: bool = False
) -> AbstractContextManager[Listeners]:
    """A new broker of a product; with `has_logins`, the clients of its TLS listener log in as
    `USER`.
    """
    start = _antipode_broker if side is Side.ANTIPODE else _kafka_broker
    return start(plan.directory / f"tls-{name}-{side}", certificates, has_logins=has_logins)


def _antipode_settings(certificates: Path, *, has_logins: bool) -> dict[str, str]:
    return {
        "listener.security.protocol.map": f"CLIENT:PLAINTEXT,LINK:{_protocol(has_logins=has_logins)}",
        "ssl.keystore.location": str(certificates / IDENTITY),
        **_logins("link", has_logins=has_logins),
    }


def _protocol(*, has_logins: bool) -> str:
    return "SASL_SSL" if has_logins else "SSL"


def _logins(listener: str, *, has_logins: bool) -> dict[str, str]:
    """Where clients log in: one user of PLAIN."""
    if not has_logins:
        return {}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    line = f'{module} required user_{USER}="{PASSWORD}";'
    prefix = f"listener.name.{listener}"
    return {f"{prefix}.sasl.enabled.mechanisms": "PLAIN", f"{prefix}.plain.sasl.jaas.config": line}


@contextmanager
def _antipode_broker(directory: Path, certificates: Path, *, has_logins: bool) -> Iterator[Listeners]:
    """The listener that links use is the encrypted one."""
    arguments = ("--sites", "a", "--no-link", "--no-proxy")
    settings = _antipode_settings(certificates, has_logins=has_logins)
    with antipode.sites(directory, *arguments, broker_settings=settings) as environment:
        site = environment.sites["a"]
        yield Listeners(broker=antipode.broker_of(environment, "a"), encrypted=site.link_bootstrap_servers)


@contextmanager
def _kafka_broker(
    directory: Path, certificates: Path, *, name: str = "kafka", has_logins: bool = False
) -> Iterator[Listeners]:
    port, encrypted_port, controller_port = free_ports(3)
    plain, encrypted = f"PLAINTEXT://{LOOPBACK}:{port}", f"ENCRYPTED://{LOOPBACK}:{encrypted_port}"
    settings = {
        **BROKER_SETTINGS,
        "listeners": f"{plain},{encrypted},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"{plain},{encrypted}",
        "listener.security.protocol.map": (
            f"PLAINTEXT:PLAINTEXT,ENCRYPTED:{_protocol(has_logins=has_logins)},CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / IDENTITY),
        **_logins("encrypted", has_logins=has_logins),
    }
    node = ApacheKafkaServer(
        name=name,
        directory=directory,
        port=port,
        controller_port=controller_port,
        jvm=(*apache_kafka.HEAP, *SERVER_JVM),
        settings=settings,
    )
    node.format()
    with running(node.child(), node.is_serving, within_s=apache_kafka.READY_WITHIN_S):
        broker = MeasuredBroker(side=Side.PEER, bootstrap_servers=node.bootstrap_servers, child=node.child())
        yield Listeners(broker=broker, encrypted=f"{LOOPBACK}:{encrypted_port}")


def _throughput(plan: Plan, listeners: Listeners, kind: str, certificates: Path, topic: str) -> None:
    """Produce and consume over one listener."""
    broker = listeners.broker
    secured = {"security.protocol": "ssl", "ssl.ca.location": str(certificates / AUTHORITY)}
    settings: Mapping[str, str] = secured if kind == ENCRYPTED else {}
    count = plan.scaled(LOAD_BYTES / RECORD_BYTES, least=2_000)
    size_bytes = count * RECORD_BYTES
    create_topic(broker.bootstrap_servers, topic)
    librdkafka.produce(listeners.address(kind), topic, payloads(RECORD_BYTES), count, {"acks": "1", **settings})
    delete_topic_and_files(broker, topic)  # an unmeasured load, so that Java compiles its hot code
    topic = f"{topic}-measured"
    create_topic(broker.bootstrap_servers, topic)
    with metered(broker.pid) as usage:
        taken_s = librdkafka.produce(
            listeners.address(kind), topic, payloads(RECORD_BYTES), count, {"acks": "1", **settings}
        )
    check_complete(broker.bootstrap_servers, topic, count)
    _record(
        plan,
        "produce, 1 KB",
        kind=kind,
        side=broker.side,
        usage=usage,
        mb_per_s=size_bytes / 1e6 / taken_s,
        size_bytes=size_bytes,
    )
    with metered(broker.pid) as usage:
        records_per_s = librdkafka.consume(listeners.address(kind), topic, PARTITION_COUNT, count, settings)
    _record(
        plan,
        "consume, 1 KB",
        kind=kind,
        side=broker.side,
        usage=usage,
        mb_per_s=records_per_s * RECORD_BYTES / 1e6,
        size_bytes=size_bytes,
    )
    delete_topic_and_files(broker, topic)


def _record(plan: Plan, load: str, kind: str, side: Side, usage: Usage, mb_per_s: float, size_bytes: int) -> None:
    """Record a sample; over TLS it includes the CPU as a multiple of the last plaintext sample of
    the same product.
    """
    values = {"mb_per_s": mb_per_s, "cpu_s_per_gb": usage.cpu_s / (size_bytes / 1e9)}
    if kind == ENCRYPTED:
        plain = [one for one in plan.samples if (one.case, one.side) == (f"{load}, {PLAINTEXT}", side)]
        values["plaintext_cpu_ratio"] = values["cpu_s_per_gb"] / max(plain[-1].values["cpu_s_per_gb"], 0.001)
    plan.record("tls", f"{load}, {kind}", side, usage, **values)


def _idle_connections(plan: Plan, listeners: Listeners, certificates: Path) -> None:
    """Open TLS connections, and compare the broker's memory before and with them."""
    count = plan.scaled(IDLE_CONNECTIONS, least=100)
    needed = count + DESCRIPTORS_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, -1) and hard < needed:
        raise OperationalFailure(f"{needed} descriptors are needed, {hard} are allowed: raise ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    context = ssl.create_default_context(cafile=str(certificates / AUTHORITY))
    address = parse_host_port(listeners.encrypted)
    pid = listeners.broker.pid
    with ExitStack() as connections, metered(pid) as usage:
        # memory for one-time set-up does not belong to a connection
        connections.enter_context(_connected(context, address))
        before = memory(pid).resident_bytes
        began_s = time.monotonic()
        for _ in range(count):
            connections.enter_context(_connected(context, address))
        took_s = time.monotonic() - began_s
        added_mb = (memory(pid).resident_bytes - before) / 1e6
    values = {"idle_mb": added_mb, "kb_per_connection": added_mb * 1e3 / count, "handshakes_per_s": count / took_s}
    plan.record("tls", f"{IDLE_CONNECTIONS:,} idle connections", listeners.broker.side, usage, **values)


def _connected(context: ssl.SSLContext, address: tuple[str, int]) -> ssl.SSLSocket:
    plain = socket.create_connection(address, timeout=60)
    return context.wrap_socket(plain, server_hostname=LOOPBACK)


@contextmanager
def _antipode_pair(directory: Path, certificates: Path) -> Iterator[SecuredPair]:  # noqa: ARG001 (the sites make their own)
    """Two secured sites: TLS and logins at both ends of the mirror, and for the load."""
    with antipode.sites(directory, "--sites", "a,b", "--no-proxy", "--secure") as environment:
        files = json.loads((directory / ENVIRONMENT_FILE).read_text(encoding="utf-8"))["security"]
        secure_clients(load_security(read_properties(Path(files["admin_client_config"]))))
        try:
            pair = MirrorPair(
                side=Side.ANTIPODE,
                source=environment.sites["a"].bootstrap_servers,
                target_broker=antipode.broker_of(environment, "b"),
                child=stopped_mirror(environment, {}),
                target_topic=str,
            )
            yield SecuredPair(pair=pair, settings=read_properties(Path(files["admin_kcat_config"])))
        finally:
            secure_clients(load_security({}))


@contextmanager
def _kafka_pair(directory: Path, certificates: Path) -> Iterator[SecuredPair]:
    with ExitStack() as started:
        source, target = (
            started.enter_context(_kafka_broker(directory / name, certificates, name=f"kafka-{name}"))
            for name in ("a", "b")
        )
        trust = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / AUTHORITY),
        }
        settings = {f"{cluster}.{key}": value for cluster in ("A", "B") for key, value in trust.items()}
        ends = (source.encrypted, target.encrypted)
        pair = MirrorPair(
            side=Side.PEER,
            source=source.broker.bootstrap_servers,
            target_broker=target.broker,
            child=mirror_maker.child(directory / "mirror-maker", *ends, (DRAINED,), settings),
            target_topic=mirror_maker.mirrored_topic,
        )
        yield SecuredPair(pair=pair, settings={})


def _drain(plan: Plan, secured: SecuredPair) -> None:
    pair = secured.pair
    count = plan.scaled(DRAIN_BYTES / RECORD_BYTES, least=2_000)
    create_topic(pair.source, DRAINED)
    librdkafka.produce(pair.source, DRAINED, payloads(RECORD_BYTES), count, {**librdkafka.EVENLY, **secured.settings})
    check_complete(pair.source, DRAINED, count)
    plan.say(f"starting {pair.child.name}")
    try:
        began = time.monotonic()
        pid = pair.child.start()
        with metered(pid) as usage:
            drain = asyncio.run(watch_drain(pair, pid, began, DRAINED, count))
        values = {"drain_mb_per_s": drain.mb_per_s, "mirror_cpu_s_per_gb": drain.cpu_s_per_gb}
    finally:
        pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
    plan.record("tls", "mirror drain, 1 KB, TLS at both ends", pair.side, usage, **values)
