"""A real ZooKeeper for tests: one server, or an ensemble of three, that can be killed, paused and
started again.

Most tests want the fixture `zookeeper_connect`: a chroot of their own on the one server of the
session. Those that break the server take the fixture `own_zookeeper`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from kazoo.client import KazooClient
from msgspec.structs import replace

from deploy.zookeeper_server import EnsembleMember, ZooKeeperServer
from runtime.zookeeper.client import ZooKeeper, end_session
from runtime.zookeeper.sessions import SessionKey
from tests.support.eventually import eventually
from tests.support.processes.ports import free_ports
from tests.support.processes.processes import READY_WITHIN_MS, Processes, RunningProcess
from tests.support.sites.site_network import HERE, Place


class ZooKeeperProcess:
    """A server and its process."""

    def __init__(self, processes: Processes, server: ZooKeeperServer, place: Place = HERE) -> None:
        self.server = server
        child = server.child()
        self.process: RunningProcess = processes.run(replace(child, command=[*place.prefix, *child.command]))

    @property
    def connect(self) -> str:
        """The connect string."""
        return self.server.connect

    def wait_serving(self, within_ms: float = READY_WITHIN_MS) -> None:
        """Wait until it answers requests."""
        self.process.wait_ready(self.server.is_serving, within_ms)

    def new_chroot(self, name: str) -> str:
        """A connect string with a new, empty chroot that no other test uses."""
        client = KazooClient(self.connect)
        client.start(timeout=30)
        try:
            return f"{self.connect}{client.create(f'/{name}-{uuid.uuid4().hex}')}"
        finally:
            client.stop()
            client.close()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()

    def restart(self) -> None:
        """Start it again on the same data and port, and wait until it serves."""
        self.process.start()
        self.wait_serving()


class ZooKeeperEnsemble:
    """Several servers that elect a leader among them."""

    def __init__(self, members: list[ZooKeeperProcess]) -> None:
        self.members = members

    @property
    def connect(self) -> str:
        """The connect string that names every member."""
        return ",".join(member.connect for member in self.members)

    def leader(self) -> ZooKeeperProcess | None:
        """The member that leads now."""
        for member in self.members:
            if "Mode: leader" in member.server.four_letter_word("srvr"):
                return member
        return None


async def expire_session(client: ZooKeeper, connect: str) -> None:
    """Have the server end the session of a living client, by taking it over; again when the client
    has taken it back before the end.
    """
    session_id, password = client._client.client_id
    key = SessionKey(int(session_id), bytes(password))

    async def is_over() -> bool:
        await end_session(connect, key)
        return client.session_id != key.session_id

    await eventually(is_over)


def start_zookeeper(processes: Processes, directory: Path, *, port: int | None = None) -> ZooKeeperProcess:
    """A single server, serving."""
    chosen = port if port is not None else free_ports(1)[0]
    started = ZooKeeperProcess(processes, ZooKeeperServer(name="zookeeper", directory=directory, port=chosen))
    started.wait_serving()
    return started


def start_zookeeper_ensemble(
    processes: Processes, directory: Path, *, places: Sequence[Place] = (HERE, HERE, HERE)
) -> ZooKeeperEnsemble:
    """An ensemble, a member a place, serving."""
    ports = free_ports(3 * len(places))
    quorum = {
        number: EnsembleMember(quorum_port=ports[3 * number - 2], election_port=ports[3 * number - 1], host=place.host)
        for number, place in enumerate(places, start=1)
    }
    members = [
        ZooKeeperProcess(
            processes,
            ZooKeeperServer(
                name=f"zookeeper-{number}",
                directory=directory / str(number),
                port=ports[3 * number - 3],
                number=number,
                ensemble=quorum,
                host=places[number - 1].host,
            ),
            places[number - 1],
        )
        for number in quorum
    ]
    for member in members:
        member.wait_serving()
    return ZooKeeperEnsemble(members)
