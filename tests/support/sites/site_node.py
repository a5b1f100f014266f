"""A broker and a controller candidate in one process on one gRPC server, against a real ZooKeeper:
for controller tests.

`python -m tests.support.sites.site_node key=value...` runs until SIGTERM; it prints one line of
JSON once clients are let in. `SiteNode` starts it from a test.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from broker.main import Broker
from broker.settings.loading import load_broker_settings
from broker.site.membership import Membership
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from runtime.children import Child
from runtime.clock import SystemClock
from runtime.configuration import load_settings
from runtime.grpc_server import GrpcServer
from runtime.logs import configure
from runtime.metrics import MetricsServer, new_registry
from runtime.process import run_daemon
from runtime.zookeeper.client import ZooKeeper
from tests.support.internal_topics import internal_topic_copies
from tests.support.processes.ports import free_ports
from tests.support.processes.processes import READY_WITHIN_MS, Processes
from tests.support.sites.site_network import HERE, Place

REPOSITORY = Path(__file__).parents[3]


class SiteNode:
    """One process of a site; it keeps its ports when it is started again."""

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        connect: str,
        node_id: int,
        settings: Mapping[str, str] | None = None,
        *,
        log_directories: Sequence[str] = ("data",),
        place: Place = HERE,
    ) -> None:
        self.node_id = node_id
        self._host = place.host
        self.port, self.grpc_port, self.metrics_port = free_ports(3)
        given = {
            "node.id": str(node_id),
            "listeners": f"CLIENT://{place.host}:{self.port}",
            "log.dirs": ",".join(str(directory / f"node-{node_id}" / name) for name in log_directories),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "2000",
            "antipode.site.name": "a",
            "antipode.site.number": "1",
            "antipode.grpc.listener": f"{place.host}:{self.grpc_port}",
            "antipode.metrics.listener": f"{place.host}:{self.metrics_port}",
            "offsets.topic.num.partitions": "2",
            **internal_topic_copies(1),
            **(settings or {}),
        }
        child = Child(
            name=f"node-{node_id}",
            command=[
                *place.prefix,
                sys.executable,
                *("-m", "tests.support.sites.site_node"),
                *(f"{key}={given[key]}" for key in given),
            ],
            directory=directory / f"node-{node_id}",
            log=directory / f"node-{node_id}.log",
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        self.process = processes.run(child)
        self._starts = 1

    @property
    def bootstrap(self) -> str:
        """The address that clients connect to."""
        return f"{self._host}:{self.port}"

    @property
    def grpc_address(self) -> str:
        """The address of its gRPC services."""
        return f"{self._host}:{self.grpc_port}"

    def figure(self, name: str, **labels: str) -> float:
        """A figure of its metrics page, 0 while it is not shown."""
        with urlopen(f"http://{self._host}:{self.metrics_port}/metrics", timeout=30) as page:
            families = text_string_to_metric_families(page.read().decode())
            samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def wait_ready(self, within_ms: float = READY_WITHIN_MS) -> None:
        """Wait until clients are let in."""
        self.process.wait_ready(lambda: self.process.log_text().count('{"ready"') >= self._starts, within_ms)

    def restart(self) -> None:
        """Start the ended process again, and wait until clients are let in."""
        self.start_again()
        self.wait_ready()

    def start_again(self) -> None:
        """Start the ended process again."""
        self._starts = self.process.log_text().count('{"ready"') + 1
        self.process.start()


async def run(properties: dict[str, str], stop: asyncio.Event) -> None:
    """Run until `stop`."""
    settings = load_broker_settings(properties)
    for path in settings.log_dirs:
        os.makedirs(path, exist_ok=True)
    zookeeper = ZooKeeper(settings.zookeeper_connect, session_timeout_ms=settings.zookeeper_session_timeout_ms)
    await zookeeper.start()
    server = GrpcServer(settings.grpc_listener.host, settings.grpc_listener.port)
    broker = Broker(settings, server, Membership(settings, zookeeper, SystemClock()))
    registry = new_registry()
    registry.register(broker.metrics)
    candidate = ControllerCandidate(
        load_settings(ControllerSettings, properties),
        grpc_server=server,
        registry=registry,
        heeds_altered_configs=True,
    )
    assert settings.metrics_listener is not None
    MetricsServer(registry, host=settings.metrics_listener.host, port=settings.metrics_listener.port).start()
    port = await server.start()
    try:
        await candidate.start(grpc_address=f"{settings.grpc_listener.host}:{port}")
        await broker.start(grpc_port=port)
        await broker.ready.wait()
        print(json.dumps({"ready": os.getpid()}), flush=True)
        await stop.wait()
    finally:
        await broker.stop()
        await candidate.stop()
        await server.stop()
        await zookeeper.stop()


if __name__ == "__main__":
    configure("site-node", level=os.environ.get("LOG_LEVEL", "INFO"))
    sys.exit(run_daemon(lambda stop: run(dict(argument.split("=", 1) for argument in sys.argv[1:]), stop)))
