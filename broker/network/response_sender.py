"""The sending half of a client's connection: parts of responses go to the kernel in order, buffers
by `sendmsg`, pieces of files by `sendfile`.

Caller: broker/network/frame_receiver.py.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from typing import Final

from broker.network.channels import Channel, FilePart, FileRest, Part, is_file
from broker.network.connection_owner import ConnectionOwner
from broker.network.response_slots import Sent

BUFFERS_PER_SEND_MAX: Final = 512  # the kernel takes 1,024 at most


class ResponseSender:
    """Parts that wait to be sent over a channel. A subclass closes the connection, and goes on with
    it once all is sent.
    """

    __slots__ = (
        "_channel",
        "_held_answers_bytes",
        "_is_writing",
        "_outgoing",
        "_send_began_ms",
        "_server",
        "_unsent",
        "is_closed",
        "progress_bytes",
    )

    def __init__(self, server: ConnectionOwner, channel: Channel) -> None:
        self._server = server
        self._channel = channel
        self._outgoing: deque[Part] = deque()
        self._held_answers_bytes = 0
        self._unsent: list[Sent] = []
        self._send_began_ms = -1.0
        self._is_writing = False
        self.is_closed = False
        self.progress_bytes = 0

    def close(self, reason: str, *, is_fault: bool = False) -> None:
        """Close the connection now."""
        raise NotImplementedError

    def _continue(self) -> None:
        """All was sent: go on with the next request."""
        raise NotImplementedError

    def _send_held(self) -> None:
        if self._outgoing and not self._is_writing and not self.is_closed:
            self._begin_sending()
            self._send()

    def _begin_sending(self) -> None:
        """Note when sending begins. A lone response never queued, so the clock is not read for
        it.
        """
        if self._send_began_ms < 0:
            self._send_began_ms = self._server.clock.monotonic_ms() if len(self._unsent) > 1 else 0.0

    def _send(self) -> None:
        # set first: a failed send closes the connection, and nothing is held then
        self._held_answers_bytes = 0
        for answer in self._unsent:
            if not answer.may_be_sent():
                self.close("a response must not be sent any more: the lease of its link has ended")
                return
        try:
            is_all_sent = self._send_some()
        except BlockingIOError:
            is_all_sent = False
        except OSError as error:
            self.close(f"connection failed: {error.strerror}")
            return
        self._write(is_wanted=not is_all_sent)
        if is_all_sent:
            self._note_sent()

    def _note_sent(self) -> None:
        began_ms, self._send_began_ms = self._send_began_ms, -1.0
        if self._unsent:
            ended_ms = self._server.clock.monotonic_ms()
            for answer in self._unsent:
                answer.sent(began_ms, ended_ms)
            self._unsent.clear()

    def _on_writable(self) -> None:
        self._send()
        if not self._outgoing:
            self._continue()

    def _write(self, *, is_wanted: bool) -> None:
        if is_wanted is self._is_writing or self.is_closed:
            return
        self._is_writing = is_wanted
        if is_wanted:
            self._server.loop.add_writer(self._channel.fd, self._on_writable)
        else:
            self._server.loop.remove_writer(self._channel.fd)

    def _send_some(self) -> bool:
        """Send until nothing is left; False or BlockingIOError if the socket's send buffer is
        full.
        """
        outgoing = self._outgoing
        while outgoing:
            head = outgoing[0]
            if is_file(head):
                if not self._send_file_part(head):
                    return False
                continue
            buffers: list[bytes | bytearray | memoryview] = []
            for part in outgoing:
                if not isinstance(part, bytes | bytearray | memoryview) or len(buffers) == BUFFERS_PER_SEND_MAX:
                    break
                buffers.append(part)
            # a file follows: the kernel may put both into one packet
            sent = self._channel.send_buffers(buffers, has_more=len(buffers) < len(outgoing))
            self._drop_sent(buffers, sent)
        self._channel.flush()
        return True

    def _drop_sent(self, buffers: Sequence[bytes | bytearray | memoryview], sent: int) -> None:
        self.progress_bytes += sent
        for buffer in buffers:
            if sent < len(buffer):
                if sent:
                    # only when some was sent: a new view of the whole would cost and change nothing
                    self._outgoing[0] = memoryview(buffer)[sent:]
                return
            sent -= len(buffer)
            self._outgoing.popleft()

    def _send_file_part(self, part: FilePart) -> bool:
        """Send the piece and release it; False if the channel took less than all of it, and
        BlockingIOError if it took nothing.
        """
        position, left = part.position, part.length
        try:
            while left:
                sent = self._channel.send_file(part.fd, position, left)
                if not sent:
                    # the log was truncated under the slice: its length is already announced, so the
                    # connection must close
                    raise OSError(errno.EIO, "the log file ends before the end of its records")
                position += sent
                left -= sent
                self.progress_bytes += sent
                if left and self._channel.is_full_after_less:
                    break
        finally:
            if 0 < left < part.length:
                self._outgoing[0] = FileRest(part, position=position, length=left)
        if left:
            return False
        self._outgoing.popleft()
        part.release()
        return True
