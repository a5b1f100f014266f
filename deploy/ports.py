"""Free ports on loopback for embedded parts.

Ports are below the kernel's range for outgoing connections, so that no connection takes a port
before its part binds it. A program never gets the same port twice: the part for which a port was
chosen may not have bound it yet. Ports are chosen at random, so that two programs rarely choose the
same one at the same moment. ANTIPODE_PORTS (first-last) gives a program and its children a range of
their own.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator, Sequence

from runtime.process import OperationalFailure

LOOPBACK = "127.0.0.1"
PORT_MIN = 12_000
PORT_MAX = 31_999
RANGE_VARIABLE = "ANTIPODE_PORTS"
RANDOM_DRAWS = 200
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """`count` different ports of loopback that are free now. Raises OperationalFailure if there are
    not enough, or ANTIPODE_PORTS names no range.
    """
    ports = _range(os.environ.get(RANGE_VARIABLE, f"{PORT_MIN}-{PORT_MAX}"))
    free: list[int] = []
    for port in _in_random_order(ports):
        if len(free) == count:
            break
        if port not in _given and port not in free and is_free(port):
            free.append(port)
    if len(free) < count:
        raise OperationalFailure(
            f"only {len(free)} of {count} ports are free between {ports[0]} and {ports[-1]}; {RANGE_VARIABLE} names others"
        )
    # never removed: the part may bind its port much later, or bind it again after a restart
    _given.update(free)
    return free


def _range(text: str) -> range:
    lowest, _, highest = text.partition("-")
    if lowest.isdecimal() and highest.isdecimal() and 1 <= int(lowest) <= int(highest) < 1 << 16:
        return range(int(lowest), int(highest) + 1)
    raise OperationalFailure(f"{RANGE_VARIABLE}={text!r} is not usable: accepted is first-last, from 1 to 65535")


def _in_random_order(ports: Sequence[int]) -> Iterator[int]:
    """A few ports in random order, which nearly always suffice, then all of them."""
    chance = random.SystemRandom()
    for _ in range(RANDOM_DRAWS):
        yield chance.choice(ports)
    yield from chance.sample(ports, len(ports))


def free_port() -> int:
    """One port of loopback that is free now."""
    return free_ports(1)[0]


def is_free(port: int) -> bool:
    """Whether a program could listen on this port of loopback now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # the parts set this option too: for them a port in TIME_WAIT is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
