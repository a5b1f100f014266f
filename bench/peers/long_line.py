"""Simulates a line with delay, a rate limit and loss between programs on this machine, and measures
its throughput.

The programs use loopback addresses as usual. In a separate network namespace, packets of chosen TCP
ports go through the device of a relay (`line_relay.py`), which returns them late or drops them. TCP
itself therefore sees the line, which a proxy would hide. This needs root and TUN devices:
`may_be_made` checks both.
"""

from __future__ import annotations

import ctypes
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.peers.line_relay import TUN
from deploy.ports import LOOPBACK, free_port
from runtime.compiled import ROOT
from runtime.process import OperationalFailure

DEVICE = "line"
PACKET_BYTES = 1_400
QUEUED_PACKETS = 5_000
SEED = 1
CONGESTION_CONTROL = "cubic"
"""The default of Linux; loss hardly slows bbr down."""
_CLONE_NEWNET = 0x40000000
_OWN_NAMESPACE = "/proc/thread-self/ns/net"


def may_be_made() -> bool:
    """True if this machine allows such a line."""
    return os.geteuid() == 0 and os.access(TUN, os.R_OK | os.W_OK)


@contextmanager
def own_network() -> Iterator[None]:
    """Give all processes that the block starts a separate loopback. Raises OperationalFailure when
    this is not allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(_OWN_NAMESPACE, os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET):
            raise OperationalFailure(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            _ip("link set lo up")
            yield
        finally:
            if libc.setns(before, _CLONE_NEWNET):
                raise OperationalFailure(f"not back from the network namespace: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(before)


@contextmanager
def long_line(ports: Sequence[int], *, delay_ms: float, loss: float = 0, mb_per_s: float = math.inf) -> Iterator[None]:
    """Simulate the line for these ports of loopback, in both directions; only within a separate
    network.
    """
    relay = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.line_relay", DEVICE, *map(str, (delay_ms, loss, mb_per_s, SEED))],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert relay.stdout is not None
        if relay.stdout.readline() != b"ready\n":
            raise OperationalFailure(f"the line's relay ended with {relay.wait()}")
        _lead_through(ports)
        yield
    finally:
        relay.kill()
        relay.wait()


def _lead_through(ports: Sequence[int]) -> None:
    """Packets to or from these ports go to the device; packets that the device returns are
    delivered to this machine.
    """
    _ip(f"link set {DEVICE} mtu {PACKET_BYTES} txqueuelen {QUEUED_PACKETS} up")
    for name in ("route_localnet", "accept_local"):
        Path(f"/proc/sys/net/ipv4/conf/{DEVICE}/{name}").write_text("1", encoding="ascii")
    for device in (DEVICE, "all"):
        Path(f"/proc/sys/net/ipv4/conf/{device}/rp_filter").write_text("0", encoding="ascii")
    # The rule for local addresses is first by default, and no rule can precede it.
    _ip("rule add pref 100 lookup local")
    _ip("rule del pref 0")
    for number, port in enumerate(ports):
        _ip(f"rule add pref {10 + 2 * number} iif lo ipproto tcp dport {port} lookup 100")
        _ip(f"rule add pref {11 + 2 * number} iif lo ipproto tcp sport {port} lookup 100")
    _ip(f"route add 127.0.0.0/8 dev {DEVICE} src {LOOPBACK} congctl {CONGESTION_CONTROL} table 100")


def carried_mb_per_s(port: int, *, streams: int, skip_s: float, duration_s: float) -> float:
    """The total throughput of this many plain TCP connections to `port` behind the line, once all
    of them run.
    """
    received = [0] * streams
    stop = threading.Event()
    with socket.create_server((LOOPBACK, port), backlog=streams) as server:
        sending = threading.Thread(target=_send_to_all, args=(server, streams, stop))
        sending.start()
        clients = [socket.create_connection((LOOPBACK, port)) for _ in range(streams)]
        receiving = [
            threading.Thread(target=_receive, args=(client, received, index)) for index, client in enumerate(clients)
        ]
        for thread in receiving:
            thread.start()
        time.sleep(skip_s)
        began_s, before = time.monotonic(), sum(received)
        time.sleep(duration_s)
        carried, took_s = sum(received) - before, time.monotonic() - began_s
        stop.set()
        for client in clients:
            client.shutdown(socket.SHUT_RDWR)
            client.close()
        for thread in (sending, *receiving):
            thread.join()
    return carried / 1e6 / took_s


def port_for_probes() -> int:
    """A free port, to be passed to `long_line` and then to `carried_mb_per_s`."""
    return free_port()


def _send_to_all(server: socket.socket, streams: int, stop: threading.Event) -> None:
    senders = []
    for _ in range(streams):
        accepted, _ = server.accept()
        senders.append(threading.Thread(target=_send, args=(accepted, stop)))
        senders[-1].start()
    for sender in senders:
        sender.join()


def _send(connection: socket.socket, stop: threading.Event) -> None:
    piece = bytes(64 * 1024)
    with connection:
        try:
            while not stop.is_set():
                connection.sendall(piece)
        except OSError:
            return  # the other end has closed, which ends the measurement


def _receive(connection: socket.socket, received: list[int], index: int) -> None:
    try:
        while piece := connection.recv(256 * 1024):
            received[index] += len(piece)
    except OSError:
        return  # the socket was closed during the call, which ends the measurement


def _ip(arguments: str) -> None:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OperationalFailure(f"ip {arguments}: {done.stderr.strip()}")
