"""The HTTP application: routes of v2 and v3, error documents, and a metric for each request."""

from __future__ import annotations

import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.access.logins import Logins
from bridge.core.documents import write
from bridge.core.media_types import JSON
from bridge.core.refusals import Refused, bad_request
from bridge.gate import Gate, caller_of
from bridge.metrics import BridgeMetrics
from bridge.parts import Parts, refused_response
from bridge.v2_consumers import V2Consumers
from bridge.v2_topics import V2Topics
from bridge.v3_cluster import V3Cluster
from bridge.v3_groups import V3Groups
from bridge.v3_records import V3Records
from runtime.logs import get_logger

log = get_logger(__name__)


def make_app(parts: Parts, logins: Logins) -> ASGIApp:
    """The application over the parts."""

    async def health(request: Request) -> Response:
        try:
            metadata = await caller_of(request).user.admin.metadata()
        except Refused as refused:
            return Response(write({"status": "unreachable", "reason": refused.message}), 503, media_type=JSON)
        return Response(write({"status": "serving", "cluster_id": metadata.cluster_id}), media_type=JSON)

    # no two families share a path, and paths are tried in this order: routes for records come first
    families = (V3Records(parts), V2Topics(parts), V2Consumers(parts), V3Cluster(parts), V3Groups(parts))
    routes = [Route("/health", health), *(route for family in families for route in family.routes())]
    handlers = {Refused: _refused, HTTPException: _no_route, ClientDisconnect: _gone, Exception: _broken}
    app = Starlette(routes=_merged(routes), exception_handlers=handlers)
    return Measured(Gate(app, logins, parts.users, parts.metrics), parts.metrics)


def _merged(routes: list[Route]) -> list[Route]:
    """One route for each path, so that a known path with another method is answered 405 and not by
    the next pattern.
    """
    by_path: dict[str, list[Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    return [_with_methods(path, found) for path, found in by_path.items()]


def _with_methods(path: str, routes: list[Route]) -> Route:
    by_method = {method: route.endpoint for route in routes for method in route.methods or ()}

    async def endpoint(request: Request) -> Response:
        # librdkafka would take such a name to end there, and act on another topic or group
        if "\0" in request.scope["path"]:
            raise bad_request("a name in the path contains the character U+0000, which no name in Kafka has")
        response: Response = await by_method[request.method](request)
        return response

    return Route(path, endpoint, methods=sorted(by_method))


class Measured:
    """Counts each request by its route, when its response is complete."""

    def __init__(self, app: ASGIApp, metrics: BridgeMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        began_s = time.monotonic()
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = scope.get("route")
            path = route.path if isinstance(route, Route) else "(none)"
            self._metrics.record_request(route=path, status=status, seconds=time.monotonic() - began_s)


def _error(request: Request, status: int, message: str) -> Response:
    return refused_response(request, Refused(status, status, message))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refused_response(request, error)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(request, error.status_code, f"HTTP {error.status_code} {error.detail}")


async def _gone(request: Request, _: Exception) -> Response:
    return _error(request, 400, "The client went away.")


async def _broken(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, exc_info=error)
    return _error(request, 500, "Internal Server Error")
