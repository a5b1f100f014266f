"""Simulates a long line for connections on loopback: a process with a TUN device that delays
packets, limits their rate, and drops some.

Runs as a program of its own in a network namespace that `long_line.py` prepared:

    python -m bench.peers.line_relay DEVICE DELAY_MS LOSS MB_PER_S SEED

The kernel sends the packets of the chosen ports to the device. The relay returns each packet after
the delay, or drops it. tc's netem would do the same, but some kernels do not have it.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

TUN = "/dev/net/tun"
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX = 65_536
PACKETS_AT_ONCE = 64
"""The number of packets that are read before due packets are returned."""
QUEUE_S = 0.1
"""The longest time (seconds) that a packet waits in the queue; a router drops one that would wait
longer.
"""


class Line:
    """The arrival time of each packet, if it arrives. Both directions share the rate."""

    def __init__(self, *, delay_s: float, loss: float, bytes_per_s: float, chance: random.Random) -> None:
        self._delay_s = delay_s
        self._loss = loss
        self._bytes_per_s = bytes_per_s
        self._chance = chance
        self._free_at_s = 0.0

    def arrival_s(self, size: int, now_s: float) -> float | None:
        """The arrival time of a packet of this size that is sent now; None if it is lost."""
        begins_s = max(now_s, self._free_at_s)
        if begins_s - now_s > QUEUE_S or self._chance.random() < self._loss:
            return None
        self._free_at_s = begins_s + size / self._bytes_per_s
        return self._free_at_s + self._delay_s


def open_device(name: str) -> int:
    """Open the TUN device `name`, and create it if necessary; return a descriptor that reads and
    writes one packet at a time. OSError without the right to.
    """
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def relay(device: int, line: Line) -> None:
    """Return each packet when it arrives, forever."""
    held: deque[tuple[float, bytes]] = deque()
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([device], [], [], wait_s)[0]:
            _take(device, held, line)
        while held and held[0][0] <= time.monotonic():
            _give(device, held.popleft()[1])


def _take(device: int, held: deque[tuple[float, bytes]], line: Line) -> None:
    for _ in range(PACKETS_AT_ONCE):
        try:
            packet = os.read(device, PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        arrival_s = line.arrival_s(len(packet), time.monotonic())
        if arrival_s is not None:
            held.append((arrival_s, packet))


def _give(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        return  # the kernel refuses the packet, which counts as lost


def main() -> None:
    """The program: prints "ready" when the device exists."""
    name, delay_ms, loss, mb_per_s, seed = sys.argv[1:]
    line = Line(
        delay_s=float(delay_ms) / 1e3,
        loss=float(loss),
        bytes_per_s=float(mb_per_s) * 1e6,
        chance=random.Random(int(seed)),
    )
    device = open_device(name)
    print("ready", flush=True)
    relay(device, line)


if __name__ == "__main__":
    main()
