"""A writer that stays at one broker: it sends a record at a time over one TLS connection with a
login, as no client library does after the leader has moved.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from kio.schema.errors import ErrorCode

from runtime.addresses import parse_host_port
from tests.support.clients.raw_client import RawClient
from wire.batches.records import Record, encode_batch

TIMEOUT_MS: Final = 30_000
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


class StayingWriter:
    """In the block, a thread writes to partition 0 of the topic until the broker refuses a
    record.
    """

    def __init__(self, address: str, topic: str, options: Mapping[str, str]) -> None:
        """`options` are librdkafka's, of PLAIN over TLS."""
        self.acknowledged = 0
        self.refusal = ErrorCode.none
        host, port = parse_host_port(address)
        self._client = RawClient(port, host, client_id="staying-writer")
        context = ssl.create_default_context(cadata=options["ssl.ca.pem"])
        self._client.socket = context.wrap_socket(self._client.socket, server_hostname=host)
        self._client.call(_SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        login = f"\0{options['sasl.username']}\0{options['sasl.password']}".encode()
        answer = self._client.call(_SASL_AUTHENTICATE, 1, {"auth_bytes": login})
        assert answer.error_code is ErrorCode.none, answer
        self._topic = topic
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a failed test does not wait for a refusal
        if kind is not None:
            self._client.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._client.socket.close()

    def _write(self) -> None:
        while self.refusal is ErrorCode.none:
            record = Record(key=None, value=b"%d" % self.acknowledged, timestamp_ms=time.time_ns() // 1_000_000)
            result = self._client.produce(self._topic, encode_batch([record]), timeout_ms=TIMEOUT_MS)
            self.refusal = ErrorCode(result.error_code)
            self.acknowledged += self.refusal is ErrorCode.none
