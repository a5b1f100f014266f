"""The send buffer of a connection, by the distance of its other end."""

from __future__ import annotations

import socket

from broker.network.channels import NEAR_SEND_BUFFER_BYTES, send_buffer_for


def test_a_near_reader_gets_a_small_buffer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with client, accepted:
            assert send_buffer_for(accepted) == NEAR_SEND_BUFFER_BYTES


def test_the_buffer_of_a_socket_without_tcp_is_left_to_the_kernel() -> None:
    first, second = socket.socketpair()
    with first, second:
        assert send_buffer_for(first) == 0
