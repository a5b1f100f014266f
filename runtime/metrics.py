"""The Prometheus endpoint that every daemon has, on a registry of its own (no process-wide default
registry).
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from runtime.supervision import deaths

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


CLIENT_TIMEOUT_S: Final = 30.0
"""Timeout for a client of the page that sends nothing."""


def new_registry() -> CollectorRegistry:
    """A registry that already has the process, platform and garbage-collector metrics, the deaths
    of tasks, and the figures of the process.
    """
    registry = CollectorRegistry()
    registry.register(TaskDeaths())
    registry.register(ProcessFigures())
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class TaskDeaths(Collector):
    """The deaths of tasks that `supervision.py` counted in this process."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One sample for each kind of work that has failed, and one with the value 0 until then."""
        family = CounterMetricFamily(
            "antipode_task_deaths", "Tasks that ended with an unexpected error, restarted or not", labels=["task"]
        )
        for task, count in sorted(deaths().items()):
            family.add_metric([task], count)
        yield family


_process_figures: Final[dict[str, Callable[[], Iterable[Metric]]]] = {}


def show_process_figures(name: str, families: Callable[[], Iterable[Metric]]) -> None:
    """Have each registry of this process show these families, also a registry that exists already.
    A second call with the same name replaces the first one. `families` is called in the metrics
    server's thread.
    """
    _process_figures[name] = families


class ProcessFigures(Collector):
    """The figures of code that serves the whole process and knows no registry."""

    def collect(self) -> Iterator[Metric]:
        """The families of each call of `show_process_figures`."""
        for families in tuple(_process_figures.values()):
            yield from families()


class OnePage(Collector):
    """Serves several registries of one process as one: families of the same name become one family,
    and equal samples are served once.
    """

    def __init__(self, registries: Sequence[CollectorRegistry]) -> None:
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        """Each family with the samples of all registries. If several registries have the same
        labels, the first one's sample is served.
        """
        families: dict[str, Metric] = {}
        known: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        for registry in self._registries:
            for family in registry.collect():
                new = [one for one in family.samples if (one.name, frozenset(one.labels.items())) not in known]
                known.update((one.name, frozenset(one.labels.items())) for one in new)
                if family.name in families:
                    families[family.name].samples.extend(new)
                else:
                    family.samples = new
                    families[family.name] = family
        yield from families.values()

    def describe(self) -> Iterator[Metric]:
        """Describes nothing in advance: the registries' metrics come at the scrape."""
        return iter(())

    @classmethod
    def of(cls, registries: Sequence[CollectorRegistry]) -> CollectorRegistry:
        """A registry that a server can serve."""
        page = CollectorRegistry()
        page.register(cls(registries))
        return page


class _Process:
    """The certificates by which this process's metrics are served."""

    context: Callable[[], ssl.SSLContext] | None = None


def serve_metrics_by(context: Callable[[], ssl.SSLContext] | None) -> None:
    """Serve this process's metrics over TLS; each new connection gets a new context, so replaced
    certificates take effect. None: plaintext.
    """
    _Process.context = context


class MetricsServer:
    """Serves `/metrics` from a daemon thread, so that a busy event loop still answers a scrape."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        host: str,
        port: int,
        health: Callable[[], tuple[bool, Mapping[str, object]]] | None = None,
    ) -> None:
        """`/health` answers with the document of `health` if that is given: status 200 when
        healthy, else 503. The server's thread calls it.
        """
        self._health = health
        self._registry = registry
        self._host = host
        self._port = port
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Bind and serve; returns the port (port 0 picks a free one). OSError when the address is
        taken.
        """
        self._server, self._thread = start_http_server(self._port, addr=self._host, registry=self._registry)
        _protect(self._server, _Process.context)
        page = self._server.get_app()
        if self._health is not None and page is not None:
            self._server.set_app(_with_health(page, self._health))
        return int(self._server.server_port)

    def stop(self) -> None:
        """Stop serving and free the port."""
        if self._server is None or self._thread is None:
            return
        ending = threading.Thread(target=self._server.shutdown)
        ending.start()
        # The server checks every half second, or after a connection, whether it shall end; this
        # connection shortens the wait.
        with contextlib.suppress(OSError), socket.create_connection((self._host, self._server.server_port), timeout=1):
            pass
        ending.join()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None


def _protect(server: WSGIServer, context: Callable[[], ssl.SSLContext] | None) -> None:
    """Limit the time of clients, each of which has a thread. Do the TLS handshake, if there is one,
    in that thread, so that a slow client does not delay others.
    """

    def accepted() -> tuple[socket.socket, Any]:
        plain, address = server.socket.accept()
        plain.settimeout(CLIENT_TIMEOUT_S)
        if context is None:
            return plain, address
        return context().wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

    report = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        # A failed handshake or a closed connection is an error of the client: it must not fill the
        # log.
        if not isinstance(sys.exception(), OSError):
            report(request, client_address)

    server.get_request = accepted  # type: ignore[method-assign]
    server.handle_error = handle_error  # type: ignore[method-assign]


def _with_health(page: WSGIApplication, health: Callable[[], tuple[bool, Mapping[str, object]]]) -> WSGIApplication:
    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/health":
            return page(environ, start_response)
        is_well, document = health()
        start_response("200 OK" if is_well else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [json.dumps(document).encode()]

    return answer
