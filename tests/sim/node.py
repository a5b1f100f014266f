"""One node of a site: a host with a disk, on which one process after another runs
(`broker_process.py`). `kill`, `lose_power`, `pause` and `stop` are what can happen to one.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Protocol

from kazoo.exceptions import KazooException

from broker.metadata.core.cluster_image import ClusterImage
from runtime.process import OperationalFailure
from tests.sim.broker_process import KAFKA_PORT, PROPERTIES, RPC_PORT, BrokerProcess
from tests.sim.disk import Disk, LogObserver
from tests.sim.sockets import MakeTap
from tests.sim.virtual_loop import Process
from tests.sim.world import VirtualClock, World

CLIENT_HOST = "c1"
RESTART_S = 1.0
"""After this a process that could not start is started again, as a service is."""


class NodesLedger(Protocol):
    """The checks of the nodes of one site or of two."""

    disks: dict[int, Disk]

    def of_node(self, node: int) -> LogObserver:
        """The checks of one node's logs."""
        ...

    def image_taken(self, node: int, before: ClusterImage, after: ClusterImage) -> None:
        """A broker has taken an image."""
        ...

    def lost_power(self, node: int) -> None:
        """A host has lost its power."""
        ...


class Node:
    """One node; `start` begins its next process."""

    def __init__(
        self,
        world: World,
        ledger: NodesLedger,
        node_id: int,
        *,
        properties: Mapping[str, Any] | None = None,
        arbiter_connect: str = "",
        clock: VirtualClock | None = None,
    ) -> None:
        """A node of one site; with `arbiter_connect` a site agent works in its process."""
        self.world = world
        self.ledger = ledger
        self.node_id = node_id
        self.host = f"b{node_id}"
        self.kafka_address = f"{self.host}:{KAFKA_PORT}"
        self.rpc_address = f"{self.host}:{RPC_PORT}"
        self.disk = ledger.disks[node_id] = Disk()
        self.arbiter_connect = arbiter_connect
        self.clock = clock or VirtualClock(world.loop)
        self.properties = {
            **PROPERTIES,
            "node.id": str(node_id),
            "listeners": f"CLIENT://{self.kafka_address}",
            "antipode.grpc.listener": self.rpc_address,
            **(properties or {}),
        }
        self.process: Process | None = None
        self.running: BrokerProcess | None = None
        self.make_tap: MakeTap | None = None
        self._starts = 0
        self._has_lost_power = False
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """Whether a process is alive, paused or not."""
        return self.process is not None and self.process.is_alive

    @property
    def is_stopping(self) -> bool:
        """Whether the process was asked to stop and has not yet."""
        return self.is_running and self._is_stopping

    def start(self) -> None:
        """A new process over the disk that the last one left."""
        if self.is_running:
            return
        world = self.world
        self._starts += 1
        world.network.powerless.discard(self.host)
        self.disk.recover(world.chance, has_lost_power=self._has_lost_power)
        self._has_lost_power = self._is_stopping = False
        process = self.process = Process(world.loop, f"{self.host}.{self._starts}", self.host)
        process.on_death.append(lambda: world.network.process_ended(process))
        world.network.changed()
        process.spawn(self._run(process), name=process.name)

    async def _run(self, process: Process) -> None:
        world = self.world
        world.tell("starts")

        try:
            running = self.running = BrokerProcess(
                world,
                process,
                self.properties,
                clock=self.clock,
                disk=self.disk,
                observer=self.ledger.of_node(self.node_id),
                arbiter_connect=self.arbiter_connect,
                make_tap=self.make_tap,
            )
            running.broker.control.on_image(self._note_image)
            await running.start()
        except (OperationalFailure, KazooException) as error:
            world.tell(f"cannot start: {error!r}")
            world.loop.call_later(RESTART_S, self.start, context=world.network.context)
            process.kill()
        except Exception as error:
            world.violate("no-defect", f"{self.host} does not start: {error!r} {traceback.format_exc(limit=-3)}")

    async def _note_image(self, before: ClusterImage, after: ClusterImage) -> None:
        self.ledger.image_taken(self.node_id, before, after)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.is_alive:
            self.world.tell(f"{self.host} is killed")
            self.process.kill()

    def lose_power(self) -> None:
        """The machine loses power without notice, and its unflushed bytes with it."""
        if self.process is not None and self.process.is_alive:
            self.world.tell(f"{self.host} loses power")
            self._has_lost_power = True
            self.world.network.powerless.add(self.host)
            self.ledger.lost_power(self.node_id)
            self.process.kill()

    def replace_disk(self) -> None:
        """A host that does not run gets an empty disk."""
        self.disk = self.ledger.disks[self.node_id] = Disk()

    def stop(self) -> None:
        """SIGTERM."""
        running, process = self.running, self.process
        if running is not None and process is not None and process.is_alive and running.is_open:
            self.world.tell(f"{self.host} is asked to stop")
            self._is_stopping = True
            process.spawn(self._stop(running, process), name="stop")

    async def _stop(self, running: BrokerProcess, process: Process) -> None:
        await running.stop()
        self.world.tell("has stopped")
        process.kill()
