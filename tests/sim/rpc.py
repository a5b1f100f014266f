"""gRPC without gRPC: the generated stubs and the real servicers, with bytes between them carried by
the simulated network.

A call that cannot be made, or whose connection breaks before the answer, fails with UNAVAILABLE and
has perhaps been carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from tests.sim.network import End, Network
from tests.sim.virtual_loop import Process

Metadata = tuple[tuple[str, str], ...]


def failure(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    """The error as gRPC raises it."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details=details)


class _Aborted(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class ServerContext:
    """The methods of a call that a servicer may use."""

    def __init__(self) -> None:
        self.trailing: Metadata = ()

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise _Aborted(code, details)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self.trailing = metadata


class RpcServer:
    """The services of one process at one address."""

    def __init__(self, network: Network, process: Process, address: str) -> None:
        self._process = process
        self._methods: dict[str, tuple[Any, Callable[..., Any], Callable[[Any], bytes]]] = {}
        network.listen(address, process, self._accept)

    def add_generic_rpc_handlers(self, _: Any) -> None:
        """gRPC's older way to register; the other one says the same."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Serve a service's methods (called by the generated code)."""
        for name, handler in handlers.items():
            self._methods[f"/{service}/{name}"] = (
                handler.request_deserializer,
                handler.unary_unary,
                handler.response_serializer,
            )

    def add_plain(self, path: str, answer: Callable[[], bytes]) -> None:
        """Serve bytes under a path of the simulation's own."""

        async def serve(_: bytes, __: ServerContext) -> bytes:
            return answer()

        self._methods[path] = (bytes, serve, bytes)

    def _accept(self, end: End, kind: str) -> None:
        if kind == "rpc":
            end.on_message = lambda message: self._receive(end, message)

    def _receive(self, end: End, message: tuple[int, str, bytes]) -> None:
        self._process.spawn(self._serve(end, *message), name=message[1])

    async def _serve(self, end: End, number: int, path: str, payload: bytes) -> None:
        if path not in self._methods:
            end.send((number, None, grpc.StatusCode.UNIMPLEMENTED, f"no method {path}", ()))
            return
        parse, handler, serialize = self._methods[path]
        context = ServerContext()
        try:
            reply = serialize(await handler(parse(payload), context))
        except _Aborted as error:
            end.send((number, None, error.code, error.details, context.trailing))
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._process.loop.failures.append(f"{self._process}: {path} failed: {error!r}")
            end.send((number, None, grpc.StatusCode.UNKNOWN, repr(error), ()))
            return
        end.send((number, reply, grpc.StatusCode.OK, "", ()))


class RpcChannel:
    """The client's side, one connection that is made again when it broke."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address
        self._end: End | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: Any,
    ) -> Callable[..., Any]:
        """One method as a coroutine function."""

        async def call(request: Any, timeout: float | None = None) -> Any:  # noqa: ASYNC109  gRPC's own signature
            try:
                async with asyncio.timeout(timeout):
                    reply, code, details, trailing = await self._call(path, request_serializer(request))
            except TimeoutError as error:
                raise failure(grpc.StatusCode.DEADLINE_EXCEEDED, "deadline exceeded") from error
            if code is not grpc.StatusCode.OK:
                raise failure(code, details, trailing)
            return response_deserializer(reply)

        return call

    async def _call(self, path: str, payload: bytes) -> Any:
        if self._end is None or not self._end.is_open:
            try:
                end = await self._network.connect(self._address, "rpc")
            except ConnectionRefusedError as error:
                raise failure(grpc.StatusCode.UNAVAILABLE, "connection refused") from error
            self._end = end
            end.on_message = self._answered
            end.on_lost = self._lost
        self._number += 1
        number = self._number
        future = self._network.loop.create_future()
        self._calls[number] = future
        self._end.send((number, path, payload))
        try:
            return await future
        finally:
            self._calls.pop(number, None)

    def _answered(self, message: tuple[Any, ...]) -> None:
        future = self._calls.get(message[0])
        if future is not None and not future.done():
            future.set_result(message[1:])

    def _lost(self) -> None:
        for future in self._calls.values():
            if not future.done():
                future.set_exception(failure(grpc.StatusCode.UNAVAILABLE, "connection lost"))

    async def close(self, _: float | None = None) -> None:
        """Close it; calls under way fail."""
        if self._end is not None:
            self._end.close()
        self._lost()
