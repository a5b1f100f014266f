"""Measures the price of moving bytes without any processing: a process receives them from one
connection and sends them to another.

`python -m bench.sections.mirrors.bytes_alone relay` is that process: it prints the ports on which
it waits for a sender and a receiver (`send PORT BYTES` and `receive PORT`, which are processes of
their own) and at the end the CPU seconds that it took. It makes as few system calls as possible:
plain sockets, one reused buffer, one wake-up for each megabyte, and pages that the sender sends
straight from the page cache. It reads no frame, knows no partition and keeps nothing for a second
try, so a mirror, which does all that, takes more.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile

from runtime.compiled import ROOT
from wire.protocol.streams.receive_mark import MARK_BYTES_MAX, ReceiveMark

FILE_BYTES = 64 * 1024 * 1024
RELAYED_BYTES = 2_000_000_000
WITHIN_S = 120
LOOPBACK = "127.0.0.1"


def relayed_cpu_s_per_gb() -> float:
    """CPU seconds, user and system, that a process takes to receive a GB and to send it on."""
    relay = _start("relay", stdout=subprocess.PIPE)
    assert relay.stdout is not None
    ends: list[subprocess.Popen[str]] = []
    try:
        sender_port, receiver_port = relay.stdout.readline().split()
        ends = [_start("receive", receiver_port), _start("send", sender_port, str(RELAYED_BYTES))]
        took_s = float(relay.communicate(timeout=WITHIN_S)[0])
    finally:
        for process in (relay, *ends):
            process.kill()
            process.wait()
    return took_s / (RELAYED_BYTES / 1e9)


def _start(*command: str, stdout: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.sections.mirrors.bytes_alone", *command], cwd=ROOT, stdout=stdout, text=True
    )


def _relay() -> None:
    buffer = memoryview(bytearray(MARK_BYTES_MAX))
    with socket.create_server((LOOPBACK, 0)) as for_sender, socket.create_server((LOOPBACK, 0)) as for_receiver:
        print(for_sender.getsockname()[1], for_receiver.getsockname()[1], flush=True)
        source, _ = for_sender.accept()
        target, _ = for_receiver.accept()
    with source, target:
        ReceiveMark(source).expect(len(buffer))
        before_s = _used_s()
        while received := source.recv_into(buffer):
            target.sendall(buffer[:received])
        print(_used_s() - before_s)


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _send(port: int, size_bytes: int) -> None:
    with tempfile.TemporaryFile() as file, socket.create_connection((LOOPBACK, port)) as relay:
        for _ in range(FILE_BYTES // MARK_BYTES_MAX):
            file.write(os.urandom(MARK_BYTES_MAX))
        file.flush()
        left = size_bytes
        while left:
            at = (size_bytes - left) % FILE_BYTES
            left -= os.sendfile(relay.fileno(), file.fileno(), at, min(left, FILE_BYTES - at))


def _receive(port: int) -> None:
    buffer = bytearray(MARK_BYTES_MAX)
    with socket.create_connection((LOOPBACK, port)) as relay:
        ReceiveMark(relay).expect(len(buffer))
        while relay.recv_into(buffer):
            pass


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["relay"]:
            _relay()
        case ["send", port, size_bytes]:
            _send(int(port), int(size_bytes))
        case ["receive", port]:
            _receive(int(port))
