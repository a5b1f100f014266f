"""A long line that loses packets, for connections on loopback: a process with a TUN device that delays each packet and drops some.

Runs as a program of its own in a network namespace that `bench/lossy_line.py` prepared: `python -m bench.line_relay DEVICE DELAY_MS LOSS`.
The kernel sends the packets of the chosen ports to the device; each one comes back in after the delay, or not at all. tc's netem
would do the same, but not every kernel has it.
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
HELD_PACKETS_MAX = 20_000
"""What the line holds at most, 28 MB of packets of 1,400 bytes; more is dropped, as a router does."""


def open_device(name: str) -> int:
    """The TUN device `name`, made if need be; a descriptor that gives and takes one packet at a time. OSError without the right to."""
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def relay(device: int, *, delay_s: float, loss: float, chance: random.Random) -> None:
    """Give each packet back after the delay, but the share `loss` of them, for ever."""
    held: deque[tuple[float, bytes]] = deque()
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([device], [], [], wait_s)[0]:
            _take(device, held, time.monotonic() + delay_s, loss, chance)
        while held and held[0][0] <= time.monotonic():
            _give(device, held.popleft()[1])


def _take(device: int, held: deque[tuple[float, bytes]], due_s: float, loss: float, chance: random.Random) -> None:
    while True:
        try:
            packet = os.read(device, PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        if chance.random() >= loss and len(held) < HELD_PACKETS_MAX:
            held.append((due_s, packet))


def _give(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        return  # the kernel does not want it: one packet more that is lost


def main() -> None:
    """The program: says "ready" once the device is there."""
    name, delay_ms, loss, seed = sys.argv[1:]
    device = open_device(name)
    print("ready", flush=True)
    relay(device, delay_s=float(delay_ms) / 1000, loss=float(loss), chance=random.Random(int(seed)))


if __name__ == "__main__":
    main()
