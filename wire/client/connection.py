"""One client connection to a broker: pipelined requests, answers in order, a deadline for each.

Between connecting and the first request of a user is one step for authentication: `handshake`,
which may exchange requests on the connection as it likes; TLS comes as an `ssl.SSLContext`. If the
session has an end, the step is repeated before it (KIP-368), and other requests wait in the
meantime. Then ApiVersions is negotiated, under the software name that makes Antipode's brokers
advertise their private messages, and compression is agreed on where it is requested and offered.

Order: requests are written in the order of the calls, and Kafka answers in the order of the
requests. At most `in_flight_max` are unanswered, further callers wait. A request that misses its
deadline closes the connection, because every later response on it would be late too. The deadline
counts silence (wire/protocol/streams/line_progress.py), so the client waits for a large response
over a slow line. A caller that is cancelled just does not get its answer.

Not here: which broker to ask, retries, reconnection (wire/client/connection_pool.py,
wire/client/raw_client.py).
"""

import asyncio
import contextlib
import importlib.metadata
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from wire.client.client_errors import RequestTimedOut, Unreachable, UnsupportedApi, broker_error
from wire.client.connect_failures import UNANSWERED, connect_failure
from wire.client.login_session import Handshake, LoginSession
from wire.client.sockets import connected_socket, keep_alive
from wire.protocol import schemas
from wire.protocol.byte_reader import Buffer, ByteReader, Malformed
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME, CODEC_ZSTD, COMPRESS_CONNECTION
from wire.protocol.streams import frames
from wire.protocol.streams.compressed_stream import CompressedStream, Compression
from wire.protocol.streams.frame_stream import FrameBuffers, FrameStream
from wire.protocol.streams.frames import VersionRange
from wire.protocol.streams.line_progress import SilenceLimit

NEGOTIATED_VERSION: Final = 3
"""The ApiVersions version that the client asks for: the first one with the software name. A broker
answers an unknown version in version 0.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options of a connection and its timeouts."""

    client_id: str = "antipode"
    software_name: str = CLIENT_SOFTWARE_NAME
    connect_timeout_ms: float = 5_000
    request_timeout_ms: float = 30_000
    in_flight_max: int = 5
    frame_bytes_max: int = 256 * 1024 * 1024
    receive_buffer_bytes: int = -1
    """The socket's (SO_RCVBUF); -1 leaves it to the system, which grows it as the link needs, up to
    its own limits.
    """
    send_buffer_bytes: int = -1
    compression: Compression | None = None
    frame_buffers: FrameBuffers | None = None
    """Shared with other connections of the same event loop; None: buffers of its own."""
    ssl_context: ssl.SSLContext | None = None
    handshake: Handshake | None = None


class Answer(NamedTuple):
    """A response frame, and where its body begins. Views of the frame keep it alive."""

    frame: memoryview
    body_position: int


class _Pending(NamedTuple):
    correlation_id: int
    api_key: int
    future: asyncio.Future[memoryview]


class Connection:
    """A connection that is ready for requests; made by `open_connection`."""

    def __init__(self, address: HostPort, options: ConnectionOptions) -> None:
        self.address = address
        self.versions: Mapping[int, VersionRange] = {}
        self._options = options
        self._stream = FrameStream(
            frame_bytes_max=options.frame_bytes_max,
            on_frame=self._receive,
            on_lost=self._lose_line,
            buffers=options.frame_buffers,
        )
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._written_bytes = 0
        self._order = asyncio.Lock()
        self._slots = asyncio.Semaphore(options.in_flight_max)
        self._lost_because: str | None = None
        self._compressed: CompressedStream | None = None
        self._login: LoginSession | None = None

    @property
    def is_compressed(self) -> bool:
        """True if both directions use compressed chunks."""
        return self._compressed is not None

    @property
    def is_open(self) -> bool:
        """True if the connection still accepts requests."""
        return self._lost_because is None

    @property
    def request_timeout_ms(self) -> float:
        """Deadline of a request that names none."""
        return self._options.request_timeout_ms

    @property
    def in_flight_count(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    async def connect(self) -> None:
        """Connect, authenticate, negotiate. Raises Unreachable. For `open_connection`."""
        options = self._options
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
                await self._open_transport(loop)
                if options.handshake is not None:
                    self._login = LoginSession(self, self._order, options.handshake)
                    async with self._order:
                        await self._login.begin()
                self.versions = await self._negotiate()
                if options.compression is not None:
                    await self._compress(options.compression)
        # UnicodeError, OverflowError: metadata of a peer may name an impossible host or port
        except (OSError, UnicodeError, OverflowError) as error:
            reason = connect_failure(error)
            self.close(reason)
            raise Unreachable(f"cannot connect: {reason}", node=str(self.address)) from error
        # also after a cancellation: the caller has no connection yet that it could close
        except BaseException:
            self.close("connecting failed")
            raise

    def version_for(self, api_key: int, *, highest: int | None = None) -> int:
        """The highest version that broker and client share, not above `highest`. Raises
        UnsupportedApi.
        """
        theirs, ours = self.versions.get(api_key), schemas.schema_versions(api_key)
        if theirs is None or ours is None:
            raise UnsupportedApi("the broker does not offer it", node=str(self.address), api_key=api_key)
        version = min(theirs.highest, ours[1] if highest is None else min(ours[1], highest))
        if version < max(theirs.lowest, ours[0]):
            shared = f"the broker offers {theirs.lowest} to {theirs.highest}, the client {ours[0]} to {version}"
            raise UnsupportedApi(shared, node=str(self.address), api_key=api_key)
        return version

    async def call(
        self, api_key: int, values: Mapping[str, Any], *, version: int | None = None, timeout_ms: float | None = None
    ) -> Any:
        """Send a request with these field values (fields that the version lacks are left out); the
        response entity.
        """
        version = self.version_for(api_key) if version is None else version
        body = schemas.encode(build_entity(schemas.request_type(api_key, version), values))
        answer = await self.request(api_key, version, [body], body_size=len(body), timeout_ms=timeout_ms)
        with self.trusting():
            return schemas.decode(schemas.response_type(api_key, version), answer.frame, answer.body_position)

    async def request(
        self, api_key: int, version: int, body: Sequence[Buffer], *, body_size: int, timeout_ms: float | None = None
    ) -> Answer:
        """Send an encoded body in parts, which must not change until it is answered; the response
        frame, not decoded.
        """
        timeout_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        async with self._deadline(api_key, timeout_ms, "no answer") as silence:
            future = await self._send(api_key, version, body, body_size)
            silence.sent_until_bytes = self._written_bytes
            frame = await future
        with self.trusting():
            return Answer(frame, frames.response_body_position(frame, api_key, version))

    async def send_unanswered(self, api_key: int, version: int, body: Sequence[Buffer], *, body_size: int) -> None:
        """Send a request that has no response (Produce with acks 0), until the system has it."""
        async with self._deadline(api_key, self._options.request_timeout_ms, "not sent"), self._order:
            await self._keep_login()
            await self._stream.writable()
            self._check_open(api_key)
            self._write(api_key, version, body, body_size)
            await self._stream.emptied()
            self._check_open(api_key)

    @contextlib.asynccontextmanager
    async def _deadline(self, api_key: int, timeout_ms: float, missed: str) -> AsyncIterator[SilenceLimit]:
        try:
            async with asyncio.timeout(timeout_ms / 1000) as limit:
                silence = SilenceLimit(limit, self._stream.transport, timeout_s=timeout_ms / 1000)
                try:
                    yield silence
                finally:
                    silence.end()
        except TimeoutError as error:
            # responses come in the order of requests: every later one would be late too
            self.close("a request timed out")
            detail = f"{missed} within {timeout_ms:.0f} ms"
            raise RequestTimedOut(detail, node=str(self.address), api_key=api_key) from error

    def close(self, reason: str = "closed by the client") -> None:
        """Close at once; requests under way fail with Unreachable."""
        self._lose(reason)
        # a connection that could not be made has no transport
        with contextlib.suppress(AssertionError):
            self._stream.transport.abort()

    async def _send(
        self, api_key: int, version: int, body: Sequence[Buffer], body_size: int
    ) -> asyncio.Future[memoryview]:
        # The lock is fair: callers are written in the order of their calls, also after a wait.
        async with self._order:
            await self._keep_login()
            return await self.send_in_order(api_key, version, body, body_size)

    async def _keep_login(self) -> None:
        """Log in again where it is time; the caller holds the order of requests."""
        if self._login is not None and self._login.is_renewed and self.is_open:
            # the session could end while the request waits for room, so that wait comes first
            async with self._slots:
                await self._stream.writable()
            await self._login.renew_if_due()

    async def send_in_order(
        self, api_key: int, version: int, body: Sequence[Buffer], body_size: int
    ) -> asyncio.Future[memoryview]:
        """Send a request; its caller holds the order of requests."""
        self._check_open(api_key)
        # inside the lock: a caller that waits for a slot keeps its place in the order
        await self._slots.acquire()
        try:
            await self._stream.writable()
            self._check_open(api_key)
        except BaseException:
            self._slots.release()  # no answer will
            raise
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(self._next_correlation_id, api_key, future))
        self._write(api_key, version, body, body_size)
        return future

    def _write(self, api_key: int, version: int, body: Sequence[Buffer], body_size: int) -> None:
        correlation_id = self._next_correlation_id
        # the protocol's correlation id is a signed 32-bit number
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        prefix = frames.request_prefix(api_key, version, correlation_id, self._options.client_id, body_size=body_size)
        self._written_bytes += len(prefix) + body_size
        if self._compressed is None:
            self._stream.transport.writelines([prefix, *body])
        else:
            self._compressed.write([prefix, *body])

    def _check_open(self, api_key: int) -> None:
        if self._lost_because is not None:
            raise Unreachable(self._lost_because, node=str(self.address), api_key=api_key)

    def _receive(self, frame: memoryview) -> None:
        if not self._pending or len(frame) < 4:
            self.close("the broker sent a response without a request")
            return
        pending = self._pending.popleft()
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != pending.correlation_id:
            # back into the queue, so that its caller fails like all others
            self._pending.appendleft(pending)
            self.close(f"answer {correlation_id} came where {pending.correlation_id} was due")
            return
        self._slots.release()
        # the caller may have been cancelled; its response is read all the same, to keep the order
        if not pending.future.done():
            pending.future.set_result(frame)

    def _lose_line(self, reason: str) -> None:
        """The other side has closed the connection, or the line is broken."""
        is_unanswered = bool(self._pending) and self._pending[0].correlation_id == 0
        self._lose(f"{reason} {UNANSWERED}" if is_unanswered else reason)

    def _lose(self, reason: str) -> None:
        if self._lost_because is not None:
            return
        self._lost_because = reason
        if self._login is not None:
            self._login.end()
        while self._pending:
            pending = self._pending.popleft()
            self._slots.release()
            if not pending.future.done():
                error = Unreachable(f"connection lost: {reason}", node=str(self.address), api_key=pending.api_key)
                pending.future.set_exception(error)

    @contextlib.contextmanager
    def trusting(self) -> Iterator[None]:
        """Bytes that contradict their version's schema end the connection."""
        try:
            yield
        except (Malformed, frames.MalformedResponse) as error:
            self.close(str(error))
            raise Unreachable(f"the answer is malformed: {error}", node=str(self.address)) from error

    async def _open_transport(self, loop: asyncio.AbstractEventLoop) -> None:
        options, ssl_context = self._options, self._options.ssl_context
        if options.receive_buffer_bytes < 0 and options.send_buffer_bytes < 0:
            transport, _ = await loop.create_connection(lambda: self._stream, *self.address, ssl=ssl_context)
            keep_alive(transport)
            return
        # Buffers count for the window that is agreed on while connecting, so they are set before.
        connected = await connected_socket(
            self.address,
            receive_buffer_bytes=options.receive_buffer_bytes,
            send_buffer_bytes=options.send_buffer_bytes,
        )
        # asyncio cannot derive the name for SNI and the certificate check from a given socket
        host = self.address.host if ssl_context is not None else None
        transport, _ = await loop.create_connection(
            lambda: self._stream, sock=connected, ssl=ssl_context, server_hostname=host
        )
        keep_alive(transport)

    async def _compress(self, compression: Compression) -> None:
        """Use compressed chunks in both directions from here on, if the broker offers it."""
        if COMPRESS_CONNECTION not in self.versions:
            compression.tally.refusals += 1
            if compression.on_refused is not None:
                compression.on_refused(str(self.address))
            return
        answer = await self.call(COMPRESS_CONNECTION, {"codec": CODEC_ZSTD, "level": compression.level})
        if answer.error_code:
            raise broker_error(answer.error_code, node=str(self.address), api_key=COMPRESS_CONNECTION)
        # only after the response, which is not compressed itself
        self._compressed = CompressedStream(self._stream, compression)

    async def _negotiate(self) -> dict[int, VersionRange]:
        """Ask what the broker speaks; once more in an older version when it refuses ours
        (KIP-511).
        """
        values = {"client_software_name": self._options.software_name, "client_software_version": installed_version()}
        version = NEGOTIATED_VERSION
        answer = await self._ask_versions(version, values)
        with self.trusting():
            # KIP-511: a broker without this version answers in version 0, and lists its own
            if _refused(answer):
                offered = _ranges(schemas.decode(schemas.response_type(18, 0), answer.frame, answer.body_position))
                version = min(version, offered.get(schemas.API_VERSIONS_KEY, VersionRange(0, 0)).highest)
                answer = await self._ask_versions(version, values)
            return _ranges(schemas.decode(schemas.response_type(18, version), answer.frame, answer.body_position))

    async def _ask_versions(self, version: int, values: Mapping[str, Any]) -> Answer:
        body = schemas.encode(build_entity(schemas.request_type(schemas.API_VERSIONS_KEY, version), values))
        return await self.request(schemas.API_VERSIONS_KEY, version, [body], body_size=len(body))


async def open_connection(address: HostPort, options: ConnectionOptions) -> Connection:
    """A connection that is authenticated and knows the broker's versions. Raises Unreachable."""
    connection = Connection(address, options)
    await connection.connect()
    return connection


@contextlib.asynccontextmanager
async def connected(address: HostPort, options: ConnectionOptions) -> AsyncIterator[Connection]:
    """A connection for the time of a `with` block."""
    connection = await open_connection(address, options)
    try:
        yield connection
    finally:
        connection.close()


def _refused(answer: Answer) -> bool:
    reader = ByteReader(answer.frame, answer.body_position)
    return reader.int16() == ErrorCode.unsupported_version


def _ranges(response: Any) -> dict[int, VersionRange]:
    return {int(api.api_key): VersionRange(api.min_version, api.max_version) for api in response.api_keys}


@cache
def installed_version() -> str:
    """The release of Antipode that runs here; "0" from a bare checkout."""
    try:
        return importlib.metadata.version("antipode")
    except importlib.metadata.PackageNotFoundError:
        return "0"
