"""Pieces of files that the socket takes in part."""

from __future__ import annotations

import socket
from typing import Any, cast

from broker.network.channels import Channel, CompressedChannel
from broker.network.response_sender import ResponseSender

TAKEN_BYTES = 100


class Loop:
    """Notes which descriptors are watched."""

    def __init__(self) -> None:
        self.writers: set[int] = set()

    def add_writer(self, fd: int, _: Any) -> None:
        self.writers.add(fd)

    def remove_writer(self, fd: int) -> None:
        self.writers.discard(fd)


class Owner:
    """The server of a connection."""

    def __init__(self) -> None:
        self.loop = Loop()


class Piece:
    """A piece of a file that is not read."""

    fd, position, length = -1, 1000, 250
    releases = 0

    def release(self) -> None:
        self.releases += 1


def test_after_a_part_of_a_piece_the_sender_waits_until_the_socket_is_writable() -> None:
    calls: list[tuple[int, int]] = []

    def send_file(_socket: int, _file: int, position: int, length: int) -> int:
        calls.append((position, length))
        return min(length, TAKEN_BYTES)

    owner, piece = Owner(), Piece()
    first, second = socket.socketpair()
    with first, second:
        sender = ResponseSender(cast("Any", owner), Channel(first, send_file))
        sender._outgoing.append(cast("Any", piece))
        sender._send()
        assert calls == [(1000, 250)]
        assert owner.loop.writers == {first.fileno()}
        sender._send()
        assert calls == [(1000, 250), (1100, 150)]
        assert piece.releases == 0
        sender._send()
        assert calls[2:] == [(1200, 50)]
        assert (piece.releases, owner.loop.writers) == (1, set())
        assert sender.progress_bytes == piece.length


def test_a_channel_that_takes_chunks_is_not_full_after_one() -> None:
    first, second = socket.socketpair()
    with first, second:
        plain = Channel(first)
        assert plain.is_full_after_less
        assert not CompressedChannel(plain, level=1).is_full_after_less
