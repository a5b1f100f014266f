"""Host and port pairs."""

from __future__ import annotations

import re
import socket

import pytest

from runtime.addresses import HostPort, checked_zookeeper_connect, parse_host_port, parse_host_ports, reachable_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", HostPort("localhost", 9092)),
        (" 10.0.0.1:0 ", HostPort("10.0.0.1", 0)),
        ("[::1]:9092", HostPort("::1", 9092)),
    ],
)
def test_an_address_is_parsed(text: str, expected: HostPort) -> None:
    assert parse_host_port(text) == expected


@pytest.mark.parametrize(
    "text", ["localhost", ":9092", "localhost:port", "localhost:70000", "localhost:", "[::1]", "a:-1"]
)
def test_a_wrong_address_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: host:port"):
        parse_host_port(text)


def test_a_default_port_is_used_where_there_is_none() -> None:
    assert parse_host_port("[::1]", default_port=2181) == HostPort("::1", 2181)


def test_an_address_prints_as_it_is_written() -> None:
    assert [str(parse_host_port(text)) for text in ("a:1", "[::1]:2")] == ["a:1", "[::1]:2"]


def test_a_list_ignores_empty_items_and_refuses_an_empty_list() -> None:
    assert parse_host_ports("a:1,,b:2,") == (HostPort("a", 1), HostPort("b", 2))
    with pytest.raises(ValueError, match="names no address"):
        parse_host_ports(" , ")


@pytest.mark.parametrize(
    ("listener", "advertised", "expected"),
    [
        (HostPort("10.0.0.1", 0), None, HostPort("10.0.0.1", 7)),
        (HostPort("0.0.0.0", 9190), None, HostPort(socket.gethostname(), 9190)),
        (HostPort("0.0.0.0", 9190), HostPort("b1.example.org", 19190), HostPort("b1.example.org", 19190)),
        (HostPort("127.0.0.1", 0), HostPort("b1.example.org", 0), HostPort("b1.example.org", 7)),
    ],
)
def test_a_listener_is_reached_as_advertised_and_never_at_a_wildcard(
    listener: HostPort, advertised: HostPort | None, expected: HostPort
) -> None:
    assert reachable_address(listener, advertised, 7) == expected


@pytest.mark.parametrize("text", ["zk1:2181", "zk1:2181,zk2:2181/site/a", "zk1,zk2", "[::1]:2181", ""])
def test_servers_of_zookeeper_are_accepted_as_they_are(text: str) -> None:
    assert checked_zookeeper_connect(text) == text


@pytest.mark.parametrize(
    ("text", "named"), [("foo:bar", "foo:bar"), ("zk1:2181,zk2:x/a", "zk2:x"), ("zk1:1,,zk2:1", "''")]
)
def test_an_unusable_server_of_zookeeper_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        checked_zookeeper_connect(text)
