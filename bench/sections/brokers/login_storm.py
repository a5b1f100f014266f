"""A storm of logins: what an application that is connected notices while others try wrong passwords
over new TLS connections, leave handshakes half open, and send others one byte at a time.

The application writes one record at a time over a connection that is open before the storm, first
to a plaintext listener, then over TLS and a login to the listener that the storm hits; each without
the storm, then while the same storm hits another broker of the machine, then during it. The storm
comes from a separate process and from another loopback address. Real storms come from other
machines, so this process has the lowest priority (`nice`): it takes CPU that neither the broker nor
the application wants. The second figure shows how much of the third is not the broker's all the
same. Each attempt is a whole handshake
and a login by PLAIN. Run by itself the module is that process: `python -m
bench.sections.brokers.login_storm HOST:PORT CA`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.measuring.plan import Plan
from bench.sections.brokers.request_rate import connected, one_in_flight, read_answers
from bench.sections.brokers.tls import (
    AUTHORITY,
    ENCRYPTED,
    PASSWORD,
    PLAINTEXT,
    USER,
    Listeners,
    broker_with_listeners,
    make_certificates,
)
from deploy.ports import LOOPBACK
from runtime.addresses import HostPort, parse_host_port

REQUEST_COUNT: Final = 10_000
ATTEMPTS_PER_S: Final = 200
THREADS: Final = 40
"""A refusal is answered after 100 ms, so a thread makes less than ten attempts a second."""
HALF_OPEN: Final = 200
STORMING: Final = "127.0.0.2"
TRICKLE_PAUSE_S: Final = 0.5
TIMEOUT_S: Final = 10
LOWEST_PRIORITY: Final = 19
_HALF_A_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


def measure(plan: Plan) -> None:
    """Requests alone and in the storm, over both kinds of connections."""
    certificates = make_certificates(plan)
    for side in plan.sides:
        start = partial(broker_with_listeners, plan, side, certificates, has_logins=True)
        with start(name="storm") as listeners, start(name="storm-elsewhere") as elsewhere:
            for repeat in range(plan.repeats):
                for kind in (PLAINTEXT, ENCRYPTED):
                    name = f"{kind.lower()}-{repeat}"
                    _measure(plan, listeners, elsewhere.encrypted, certificates / AUTHORITY, kind=kind, name=name)


def _measure(plan: Plan, listeners: Listeners, elsewhere: str, authority: Path, *, kind: str, name: str) -> None:
    count = plan.scaled(REQUEST_COUNT, least=200)
    connect = partial(_connected, listeners, authority, kind)
    alone, _ = one_in_flight(listeners.broker, f"storm-alone-{name}", 1, count, connect=connect)
    with _storm(elsewhere, authority):
        beside, _ = one_in_flight(listeners.broker, f"storm-elsewhere-{name}", 1, count, connect=connect)
    with _storm(listeners.encrypted, authority) as storm:
        stormed, usage = one_in_flight(listeners.broker, f"storm-{name}", 1, count, connect=connect)
    values = {
        "alone_p99_ms": alone["p99_ms"],
        "elsewhere_p99_ms": beside["p99_ms"],
        "storm_p99_ms": stormed["p99_ms"],
        "storm_p99_ratio": stormed["p99_ms"] / alone["p99_ms"],
        "attempts_per_s": storm.attempts_per_s,
    }
    case = f"one record over {kind}, acks=1, beside wrong logins"
    plan.record("storm", case, listeners.broker.side, usage, **values)


def _connected(listeners: Listeners, authority: Path, kind: str) -> socket.socket:
    """The application's connection, which has logged in where the listener demands it."""
    plain = connected(parse_host_port(listeners.address(kind)))
    if kind == PLAINTEXT:
        return plain
    tls = ssl.create_default_context(cafile=authority).wrap_socket(plain, server_hostname=LOOPBACK)
    tls.sendall(_login(PASSWORD))
    read_answers(tls, 2)
    return tls


@dataclass(slots=True)
class Storm:
    """What the storming process says when it ends."""

    attempts_per_s: float = 0.0


@contextmanager
def _storm(attacked: str, authority: Path) -> Iterator[Storm]:
    command = (sys.executable, "-m", "bench.sections.brokers.login_storm", attacked, str(authority))
    repository = Path(__file__).resolve().parents[3]
    storm = Storm()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=repository) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # the process prints a line when its half-open connections are open
            process.stdout.readline()
            began_s = time.monotonic()
            yield storm
            process.stdin.close()
            storm.attempts_per_s = int(process.stdout.readline()) / (time.monotonic() - began_s)
        finally:
            process.kill()


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _login(password: str) -> bytes:
    mechanism = b"PLAIN"
    message = f"\0{USER}\0{password}".encode()
    return _frame(_SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism) + _frame(
        _SASL_AUTHENTICATE, 1, struct.pack(">i", len(message)) + message
    )


def _try_again_and_again(address: HostPort, context: ssl.SSLContext, attempts: list[None]) -> None:
    frames, pause_s = _login("wrong"), THREADS / ATTEMPTS_PER_S
    next_s = time.monotonic()
    while True:
        # a storm consists of refused and closed connections, so these errors are expected
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, TIMEOUT_S, source_address=(STORMING, 0)) as plain,
            context.wrap_socket(plain, server_hostname=LOOPBACK) as tls,
        ):
            tls.sendall(frames)
            while tls.recv(4096):
                pass
        attempts.append(None)
        next_s = max(next_s + pause_s, time.monotonic() - 1)
        time.sleep(max(next_s - time.monotonic(), 0))


def _half_open(address: HostPort) -> socket.socket:
    stuck = socket.create_connection(address, TIMEOUT_S, source_address=(STORMING, 0))
    stuck.sendall(_HALF_A_HELLO)
    return stuck


def _trickle(slow: list[socket.socket]) -> None:
    """Send a byte on each connection, again and again; the broker may have ended some."""
    while True:
        for stuck in slow:
            with contextlib.suppress(OSError):
                stuck.send(b"\0", socket.MSG_DONTWAIT)
        time.sleep(TRICKLE_PAUSE_S)


def _run(attacked: str, authority: str) -> None:
    """Storm until standard input ends, and print the number of attempts that have ended."""
    os.nice(LOWEST_PRIORITY)
    address, context = parse_host_port(attacked), ssl.create_default_context(cafile=authority)
    stuck = [_half_open(address) for _ in range(HALF_OPEN)]
    attempts: list[None] = []
    threading.Thread(target=_trickle, args=(stuck[: HALF_OPEN // 2],), daemon=True).start()
    for _ in range(THREADS):
        threading.Thread(target=_try_again_and_again, args=(address, context, attempts), daemon=True).start()
    print(f"{len(stuck)} handshakes are half open, and half of them continue slowly", flush=True)
    sys.stdin.read()
    print(len(attempts), flush=True)


if __name__ == "__main__":
    _run(*sys.argv[1:])
