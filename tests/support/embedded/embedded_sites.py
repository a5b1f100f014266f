"""Whole sites through the front door: `antipode up` as a process of its own, its one line of JSON,
and faults to all it started.

Unlike `tests/support/pairs/full_sites.py` nothing is wrapped: tests run the commands that a person
runs. Processes are found by the JSON and their pid files, proxies by toxiproxy's own Python client.
A test takes the fixture `start_sites` of its folder, which ends whatever is left.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec.structs import replace
from toxiproxy import Toxiproxy

from deploy.toxiproxy_server import ToxiproxyServer
from deploy.zookeeper_server import ZooKeeperServer
from dr.drill.environment import Environment, EnvironmentProcess, parse_environment
from dr.drill.faults import NetworkFaults
from runtime.addresses import parse_host_port
from runtime.forking.fork_server import ForkedProcess, ForkRequest
from tests.support.eventually import eventually_sync
from tests.support.processes.fork_server import COMMAND, fork_server, run_antipode
from tests.support.processes.ports import LOOPBACK, free_port
from tests.support.processes.processes import RunningProcess

FRONT_DOOR = (sys.executable, "-m", "cli.main")
REPOSITORY = Path(__file__).parents[3]
READY_WITHIN_MS = 180_000
STOP_WITHIN_MS = 120_000
"""More than `antipode up` itself gives one part after the other."""
LINK = "a-b"


class EmbeddedSites:
    """One `antipode up` and everything that it runs under one directory. Its first two sites are
    the link's source and target.
    """

    def __init__(
        self, directory: Path, *arguments: str, has_dir: bool = True, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._arguments = (*(("--dir", str(directory)) if has_dir else ()), *arguments)
        self._environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(environment or {})}
        self._outputs = directory.parent / f"{directory.name}-outputs"
        self._process: ForkedProcess | None = None
        self.document: dict[str, Any] = {}
        self.environment = Environment(sites={})

    def start(self, *more_arguments: str) -> None:
        """Start the command, and do not wait."""
        self._outputs.mkdir(parents=True, exist_ok=True)
        for name in ("out", "err"):
            self._output_file(name).write_bytes(b"")
        self._process = fork_server().fork(
            ForkRequest(
                module=COMMAND,
                arguments=["up", "--output", "json", *self._arguments, *more_arguments],
                directory=str(self._outputs),
                output=str(self._output_file("out")),
                errors=str(self._output_file("err")),
                environment=self._environment,
                has_server=True,
            )
        )

    def wait_ready(self) -> Environment:
        """Wait until the line is printed. Raises AssertionError with its output if the process ends
        instead.
        """
        eventually_sync(lambda: self.output.endswith("\n") or not self.is_running, READY_WITHIN_MS)
        assert self.is_running, f"antipode up ended with {self.wait_ended()}: {self.errors}"
        self.document = json.loads(self.output)
        self.environment = parse_environment(self.output, where="antipode up")
        return self.environment

    def start_and_wait(self, *more_arguments: str) -> Environment:
        """Both."""
        self.start(*more_arguments)
        return self.wait_ready()

    @property
    def output(self) -> str:
        """Standard output so far."""
        return self._output_file("out").read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        """Standard error so far."""
        return self._output_file("err").read_text(encoding="utf-8")

    @property
    def is_running(self) -> bool:
        """True if the command itself runs."""
        return self._started.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal the command itself."""
        if self.is_running:
            os.kill(self._started.pid, number)

    def wait_ended(self) -> int:
        """The exit code of the command, once it has ended."""
        eventually_sync(lambda: not self.is_running, STOP_WITHIN_MS)
        code = self._started.poll()
        assert code is not None
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop: it does, with code 0, having killed nothing at a deadline and leaving no
        process behind.
        """
        self.send(number)
        assert self.wait_ended() == 0, self.errors
        assert "killed at the deadline" not in self.errors, self.errors
        assert self.left_over() == []

    def left_over(self) -> list[psutil.Process]:
        """Processes that work in the directory."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_there = Path(process.cwd()).is_relative_to(self.directory)
                if is_there and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self) -> None:
        """kill -9 whatever still runs."""
        if self._process is not None and self.is_running:
            self.send(signal.SIGKILL)
            self.wait_ended()
        for process in self.left_over():
            with suppress(psutil.Error):
                process.kill()
        eventually_sync(lambda: not self.left_over())

    def bootstrap(self, site: str) -> str:
        """The address that applications of a site connect to."""
        return self.environment.sites[site].bootstrap_servers

    def broker(self, site: str, index: int = 0) -> RunningProcess:
        """A broker of a site."""
        return self.process(self._broker_entries(site)[index].name)

    def unanswered_questions(self, site: str) -> int:
        """How often the first broker has logged that it went on without an answer of the other
        site, for which it waits a second or two.
        """
        return len(re.findall("could not be forwarded.*no answer within", self.broker(site).log_text()))

    def zookeeper(self, site: str) -> RunningProcess:
        """The ZooKeeper of a site."""
        return self.process(f"zookeeper-{site}")

    @property
    def mirror(self) -> RunningProcess:
        """The mirror of the first link."""
        return self.process(f"mirror-{self.environment.links[0].name}")

    @property
    def toxiproxy(self) -> RunningProcess:
        """The toxiproxy server."""
        return self.process("toxiproxy")

    def process(self, name: str) -> RunningProcess:
        """A process by its name."""
        if name == "toxiproxy":
            return RunningProcess(EnvironmentProcess.model_validate(self.document["toxiproxy"]).child())
        (entry,) = self.environment.processes(process=name)
        return RunningProcess(replace(entry.child(), name=name))

    def restart(self, process: RunningProcess) -> None:
        """Start a process that has ended and wait until it does its work; toxiproxy gets its
        proxies back.
        """
        process.start()
        process.wait_ready(self._is_ready(process), READY_WITHIN_MS)
        if process.name == "toxiproxy":
            self.create_proxies()

    @property
    def network(self) -> NetworkFaults:
        """Faults of the first link's proxies."""
        return NetworkFaults(self.environment, self.environment.links[0].name)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """No connection between the sites for as long as the block runs."""
        self.network.cut(self.network.selected(), is_silent=False)
        try:
            yield
        finally:
            self.network.heal()

    def create_proxies(self) -> None:
        """Make the link's proxies at a toxiproxy that has none."""
        server = self.toxiproxy_server()
        for proxy in self.environment.links[0].proxies:
            server.create(name=proxy.name, listen=proxy.listen, upstream=proxy.upstream)

    def put_clients_behind_proxies(self) -> dict[str, str]:
        """Give every broker a proxy before its CLIENT listener and restart it with that as its
        advertised address.

        Then clients of all sites learn only addresses of proxies. Returns the new bootstrap servers
        by site.
        """
        server = self.toxiproxy_server()
        bootstraps: dict[str, list[str]] = {name: [] for name in self.environment.sites}
        for name, site in self.environment.sites.items():
            for entry, own in zip(self._broker_entries(name), site.bootstrap_servers.split(","), strict=True):
                proxy = server.create(name=f"{entry.name}-client", listen=f"{LOOPBACK}:{free_port()}", upstream=own)
                bootstraps[name].append(proxy.listen)
                broker = self.process(entry.name)
                broker.stop()
                properties = broker.child.directory / "server.properties"
                text = properties.read_text(encoding="utf-8")
                listeners = f"advertised.listeners=CLIENT://{own},"
                assert listeners in text
                properties.write_text(text.replace(listeners, listeners.replace(own, proxy.listen)), encoding="utf-8")
                self.restart(broker)
        return {name: ",".join(addresses) for name, addresses in bootstraps.items()}

    def toxiproxy_server(self) -> Toxiproxy:
        """Toxiproxy's own client."""
        assert self.environment.toxiproxy is not None, "started without toxiproxy"
        host, port = parse_host_port(self.environment.toxiproxy.api)
        server = Toxiproxy()
        server.update_api_consumer(host, port)
        return server

    @contextmanager
    def running_command(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """An `antipode` command that runs until it is ended, at the latest with the block."""
        process = subprocess.Popen(
            [*FRONT_DOOR, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._outputs,
            env={**self._environment, "ANTIPODE_ENVIRONMENT": str(self.directory / "environment.json")},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another `antipode` command, to its end, with these sites as its environment."""
        environment = {**self._environment, "ANTIPODE_ENVIRONMENT": str(self.directory / "environment.json")}
        return run_antipode(*arguments, directory=self._outputs, environment=environment)

    def _is_ready(self, process: RunningProcess) -> Callable[[], bool]:
        name, directory = process.name, process.child.directory
        if name == "toxiproxy":
            assert self.environment.toxiproxy is not None
            api = parse_host_port(self.environment.toxiproxy.api)
            return ToxiproxyServer(name=name, directory=directory, port=api.port).is_serving
        for site_name, site in self.environment.sites.items():
            if name == f"zookeeper-{site_name}":
                security = self.document.get("security")
                return ZooKeeperServer(
                    name=name,
                    directory=directory,
                    port=parse_host_port(site.zookeeper).port,
                    certificate=None if security is None else self.directory / "security" / f"{name}.pem",
                    authority=None if security is None else Path(security["ca"]),
                ).is_serving
            for entry, address in zip(self._broker_entries(site_name), site.grpc, strict=True):
                if name == entry.name:
                    return lambda: is_healthy(address)
        (mirror,) = (mirror for mirror in self.environment.mirrors if f"mirror-{mirror.name}" == name)
        return lambda: is_healthy(mirror.grpc, service="antipode.control.MirrorAdmin")

    def _broker_entries(self, site: str) -> list[EnvironmentProcess]:
        return [entry for entry in self.environment.sites[site].processes if entry.name.startswith("broker")]

    def _output_file(self, name: str) -> Path:
        return self._outputs / f"up.{name}"

    @property
    def _started(self) -> ForkedProcess:
        assert self._process is not None, "not started"
        return self._process


def is_healthy(address: str, service: str = "") -> bool:
    """True if a process, or one of its services, reports over gRPC that it is ready."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=1)
        except grpc.RpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


class SitesStarter:
    """Makes sites for one test (or module) under one directory, and ends them all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[EmbeddedSites] = []

    def prepared(self, *arguments: str, environment: Mapping[str, str] | None = None) -> EmbeddedSites:
        """Sites that are not started yet."""
        sites = EmbeddedSites(self._directory / f"sites-{len(self._started)}", *arguments, environment=environment)
        self._started.append(sites)
        return sites

    def __call__(self, *arguments: str) -> EmbeddedSites:
        """Sites that are ready."""
        sites = self.prepared(*arguments)
        sites.start_and_wait()
        return sites

    def end_all(self) -> None:
        """kill -9 whatever still runs."""
        for sites in self._started:
            sites.end()
