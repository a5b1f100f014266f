"""A storm of logins: what an application that is connected notices while others try wrong passwords
over new TLS connections, leave handshakes half open, and send others one byte at a time.

The application writes one record at a time to a plaintext listener, first without the storm, then
during it. The storm comes from a separate process and from another loopback address. Each attempt
is a whole handshake and a login by PLAIN. Run by itself the module is that process: `python -m
bench.sections.brokers.login_storm HOST:PORT CA`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.measuring.plan import Plan
from bench.peers.systems import MeasuredBroker
from bench.sections.brokers.request_rate import one_in_flight
from deploy.ports import LOOPBACK
from runtime.addresses import HostPort, parse_host_port

REQUEST_COUNT: Final = 10_000
CASE: Final = "one record, acks=1, beside 200 wrong logins a second"
USER, PASSWORD = "bench", "of the bench"
ATTEMPTS_PER_S: Final = 200
THREADS: Final = 8
HALF_OPEN: Final = 200
STORMING: Final = "127.0.0.2"
TRICKLE_PAUSE_S: Final = 0.5
TIMEOUT_S: Final = 10
_HALF_A_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


def measure(plan: Plan, broker: MeasuredBroker, attacked: str, authority: Path) -> None:
    """Requests alone and in the storm; `attacked` is the listener that it hits."""
    count = plan.scaled(REQUEST_COUNT, least=200)
    for repeat in range(plan.repeats):
        alone, _ = one_in_flight(broker, f"storm-alone-{repeat}", 1, count)
        with _storm(attacked, authority):
            stormed, usage = one_in_flight(broker, f"storm-{repeat}", 1, count)
        values = {
            "alone_p99_ms": alone["p99_ms"],
            "storm_p99_ms": stormed["p99_ms"],
            "storm_p99_ratio": stormed["p99_ms"] / alone["p99_ms"],
        }
        plan.record("tls", CASE, broker.side, usage, **values)


@contextmanager
def _storm(attacked: str, authority: Path) -> Iterator[None]:
    command = (sys.executable, "-m", "bench.sections.brokers.login_storm", attacked, str(authority))
    repository = Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=repository) as process:
        assert process.stdout is not None
        try:
            # the process prints a line when its half-open connections are open
            process.stdout.readline()
            yield
        finally:
            process.kill()


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _wrong_login() -> bytes:
    mechanism = b"PLAIN"
    message = f"\0{USER}\0wrong".encode()
    return _frame(_SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism) + _frame(
        _SASL_AUTHENTICATE, 1, struct.pack(">i", len(message)) + message
    )


def _try_again_and_again(address: HostPort, context: ssl.SSLContext) -> None:
    frames, pause_s = _wrong_login(), THREADS / ATTEMPTS_PER_S
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
    """Storm until this process is killed."""
    address, context = parse_host_port(attacked), ssl.create_default_context(cafile=authority)
    stuck = [_half_open(address) for _ in range(HALF_OPEN)]
    threading.Thread(target=_trickle, args=(stuck[: HALF_OPEN // 2],), daemon=True).start()
    for _ in range(THREADS):
        threading.Thread(target=_try_again_and_again, args=(address, context), daemon=True).start()
    print(f"{len(stuck)} handshakes are half open, and half of them continue slowly", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _run(*sys.argv[1:])
