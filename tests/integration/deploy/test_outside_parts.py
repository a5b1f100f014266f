"""The real ZooKeeper and toxiproxy that everything else in this folder stands on: start, crash,
restart, faults.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from tests.support.processes.zookeeper import ZooKeeperProcess, start_zookeeper_ensemble

pytestmark = pytest.mark.integration


@contextmanager
def _session(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_each_test_has_an_empty_root(zookeeper_connect: str) -> None:
    with _session(zookeeper_connect) as client:
        assert client.get_children("/") == []


def test_znodes_survive_kill_9(own_zookeeper: ZooKeeperProcess) -> None:
    with _session(own_zookeeper.connect) as client:
        client.create("/kept", b"value")
        own_zookeeper.kill()
        own_zookeeper.restart()
        assert client.retry(client.get, "/kept")[0] == b"value"


def test_an_ensemble_elects_a_new_leader_when_its_leader_is_killed(processes: Processes, tmp_path: Path) -> None:
    ensemble = start_zookeeper_ensemble(processes, tmp_path)
    leader = eventually_sync(ensemble.leader)
    leader.kill()
    with _session(ensemble.connect) as client:
        client.create("/after", b"")
    assert eventually_sync(ensemble.leader) is not leader


@contextmanager
def _echo_server() -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.join()


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while chunk := connection.recv(65536):
                connection.sendall(chunk)
        except OSError:
            return


def test_a_cut_proxy_ends_connections_and_refuses_new_ones_until_restored(toxiproxy: Toxiproxy) -> None:
    with _echo_server() as upstream:
        proxy = toxiproxy.create("echo", upstream)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            connection.sendall(b"ping")
            assert connection.recv(4) == b"ping"
            with proxy.cut_off():
                assert connection.recv(4) == b""
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", proxy.port), timeout=30).close()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            connection.sendall(b"pong")
            assert connection.recv(4) == b"pong"


def test_toxics_are_added_changed_and_removed(toxiproxy: Toxiproxy) -> None:
    with _echo_server() as upstream:
        proxy = toxiproxy.create("echo", upstream)
        name = proxy.add("limit_data", bytes=2)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            connection.sendall(b"ping")
            assert connection.recv(4) == b"pi"
        proxy.change(name, bytes=3)
        proxy.remove(name)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            connection.sendall(b"ping")
            assert connection.recv(4) == b"ping"
