"""Free ports: different, free, and outside the kernel's own range."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy import ports
from runtime.process import OperationalFailure
from tests.support.eventually import eventually_sync


def can_all_be_bound(found: list[int]) -> bool:
    try:
        for port in found:
            with socket.socket() as listener:
                listener.bind((ports.LOOPBACK, port))
    except OSError:
        return False
    return True


def test_ports_are_different_and_free() -> None:
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    # Another program of the machine may take one in between, but not time and again.
    eventually_sync(lambda: can_all_be_bound(ports.free_ports(50)))


def test_a_port_that_is_listened_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.delenv(ports.RANGE_VARIABLE, raising=False)
        monkeypatch.setattr(ports, "PORT_MIN", taken)
        monkeypatch.setattr(ports, "PORT_MAX", taken)
        with pytest.raises(OperationalFailure, match="only 0 of 1 ports"):
            ports.free_port()


def test_ports_lie_below_the_kernel_s_range_for_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert first > ports.PORT_MAX


@pytest.mark.parametrize("text", ["", "abc", "9-8", "0-70000", "5", "1-2-3"])
def test_a_range_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(ports.RANGE_VARIABLE, text)
    with pytest.raises(OperationalFailure, match=f"ANTIPODE_PORTS='{text}' is not usable"):
        ports.free_port()
