"""Injects faults, only into processes and proxies that the environment names, and undoes all of
them.

Network faults use toxiproxy's Python client. This module works around its gaps: it supports only
one server for each process (the address is a class variable), reports server errors as unrelated
exceptions or not at all (so each change is looked at afterwards), cannot change a toxic (so the
toxic is replaced), and waits for an answer without a limit (so its requests get one). Processes are
signalled through their pid files. `restore` and `heal` may be called at any time, also twice, and
continue after a failure.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import requests
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists
from toxiproxy.proxy import Proxy

from dr.drill.environment import Environment, EnvironmentProcess, EnvironmentProxy
from dr.drill.remote_hosts import RemoteShell
from runtime.addresses import parse_host_port
from runtime.process import OperationalFailure

TOXIPROXY_ATTEMPTS_MAX = 3
TOXIPROXY_ANSWERS_WITHIN_S = 5.0
KILLED_WITHIN_MS = 10_000
ARBITER_KIND = "arbiter"
REFUSALS = (InvalidToxic, NotFound, ProxyExists)
"""The client library's exceptions for the answers 400, 404 and 409."""
STREAMS = {"both": ("downstream", "upstream"), "towards": ("upstream",), "from": ("downstream",)}
"""Toxiproxy's streams by the direction of an interruption, as seen from the site behind the proxy.
"""

Result = TypeVar("Result")


def _with_deadline(request: Callable[..., Result]) -> Callable[..., Result]:
    def answered(url: str, **arguments: Any) -> Result:
        return request(url, timeout=TOXIPROXY_ANSWERS_WITHIN_S, **arguments)

    return answered


for _verb in ("get", "post", "delete"):
    # The client library's own callers can give no deadline.
    setattr(APIConsumer, _verb, staticmethod(_with_deadline(getattr(APIConsumer, _verb))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """One toxic in both directions or one."""

    kind: str
    attributes: dict[str, int]
    streams: tuple[str, ...] = ("downstream", "upstream")


class NetworkFaults:
    """The proxies of one link."""

    def __init__(self, environment: Environment, link: str) -> None:
        self._proxies = environment.link(link).proxies
        self._link = link
        self._api = environment.toxiproxy
        self._server: Toxiproxy | None = None

    def selected(self, *, kind: str = "", site: str = "") -> list[EnvironmentProxy]:
        """The proxies between the link's sites, or only those of one kind or in front of one site;
        kind `arbiter` selects those between a site and the arbiter. Raises OperationalFailure when
        there are none.
        """
        found = [
            proxy
            for proxy in self._proxies
            if (proxy.kind == kind if kind else proxy.kind != ARBITER_KIND) and site in ("", proxy.site)
        ]
        if not found or self._api is None:
            raise OperationalFailure(
                f"link {self._link} has no proxy {kind or 'of any kind'} before {site or 'any site'}: "
                "start the sites with toxiproxy"
            )
        return found

    def cut(self, proxies: Iterable[EnvironmentProxy], *, is_silent: bool, direction: str = "both") -> None:
        """Close connections and refuse new ones. A silent interruption instead drops every byte, or
        every byte of one direction.
        """
        if is_silent:
            self.add(proxies, [Toxic(kind="timeout", attributes={"timeout": 0}, streams=STREAMS[direction])])
            return
        for proxy in proxies:
            self._call(proxy, partial(self._disable, proxy))

    def add(self, proxies: Iterable[EnvironmentProxy], toxics: Sequence[Toxic]) -> None:
        """Add toxics, replacing those of the same kind."""
        for proxy in proxies:
            for toxic in toxics:
                for stream in toxic.streams:
                    self._call(proxy, partial(self._add, proxy, toxic, stream))

    def _add(self, proxy: EnvironmentProxy, toxic: Toxic, stream: str) -> None:
        name = f"{toxic.kind}_{stream}"
        live = self._proxy(proxy)
        # The client library of toxiproxy cannot change a toxic.
        if name in live.toxics():
            live.destroy_toxic(name)
        live.add_toxic(name=name, type=toxic.kind, stream=stream, attributes=toxic.attributes)
        if name not in live.toxics():
            raise OperationalFailure(f"proxy {proxy.name}: toxiproxy did not take the toxic {name}")

    def heal(self) -> None:
        """Remove every toxic from the link's proxies and enable them. Other proxies of the server
        may belong to another user. The OperationalFailure names all proxies that are not healed.
        """
        if self._api is None:
            return
        problems = []
        for proxy in self._proxies:
            try:
                self._call(proxy, partial(self._heal, proxy))
            except OperationalFailure as failure:
                problems.append(str(failure))
        if problems:
            raise OperationalFailure("; ".join(problems))

    def _heal(self, proxy: EnvironmentProxy) -> None:
        live = self._proxy(proxy)
        for name in live.toxics():
            live.destroy_toxic(name)
        if not live.enabled:
            live.enable()
        if live.toxics() or not self._proxy(proxy).enabled:
            raise OperationalFailure(f"proxy {proxy.name} is not healed: is its port {proxy.listen} taken?")

    def _disable(self, proxy: EnvironmentProxy) -> None:
        self._proxy(proxy).disable()
        if self._proxy(proxy).enabled:
            raise OperationalFailure(f"proxy {proxy.name}: toxiproxy did not close it")

    def _proxy(self, proxy: EnvironmentProxy) -> Proxy:
        if self._server is None:
            assert self._api is not None
            host, port = parse_host_port(self._api.api)
            # An HTTP proxy from the environment variables must not be used for toxiproxy's API.
            os.environ["NO_PROXY"] = ",".join(filter(None, (os.environ.get("NO_PROXY", ""), host)))
            self._server = Toxiproxy()
            self._server.update_api_consumer(host, port)
        live = self._server.get_proxy(proxy.name)
        if live is None:
            raise OperationalFailure(f"toxiproxy has no proxy {proxy.name!r}: were the sites started again?")
        return live

    def _call(self, proxy: EnvironmentProxy, call: Callable[[], Result]) -> Result:
        """Call toxiproxy, with retries. A server error appears as an exception of the client
        library, or as KeyError or ValueError in its parser; a broken connection may be temporary.
        """
        last: Exception | None = None
        for _ in range(TOXIPROXY_ATTEMPTS_MAX):
            try:
                return call()
            except (requests.RequestException, KeyError, ValueError, *REFUSALS) as error:
                last = error
        assert self._api is not None
        raise OperationalFailure(
            f"toxiproxy at {self._api.api} rejects the request for proxy {proxy.name}: {last!r}"
        ) from last


@dataclass(slots=True)
class ProcessFaults:
    """Sends signals to the environment's processes, and remembers which of them must be
    restored.
    """

    environment: Environment
    ended: list[EnvironmentProcess] = field(default_factory=list)
    stopped: list[EnvironmentProcess] = field(default_factory=list)
    full: list[EnvironmentProcess] = field(default_factory=list)

    def kill(self, processes: Sequence[EnvironmentProcess], *, may_stay_down: bool) -> None:
        """Send SIGKILL to all processes at once, then wait until they have ended. Raises
        OperationalFailure for those that still run, and when none ran before.
        """
        noted = [] if may_stay_down else self.ended
        _check_any_ran(processes, [self._send(process, signal.SIGKILL, noted) for process in processes])
        # The waits come after all signals, so that the processes die together, as at a lost site.
        alive = [
            process.name
            for process in processes
            if not self.environment.child(process).wait_ended(timeout_ms=KILLED_WITHIN_MS)
        ]
        if alive:
            raise OperationalFailure(f"{', '.join(alive)} did not end within {KILLED_WITHIN_MS} ms after a kill -9")

    def terminate(self, processes: Sequence[EnvironmentProcess], *, timeout_ms: int, may_stay_down: bool) -> list[str]:
        """Send SIGTERM in the reverse order of starting. Returns the names of processes that had to
        be killed. OperationalFailure when none ran.
        """
        late = []
        ran = False
        # A process stops before the processes that it depends on, because it needs them for a clean
        # stop.
        for process in reversed(processes):
            if self.environment.child(process).pid() is None:
                continue
            ran = True
            if not may_stay_down:
                self.ended.append(process)
            if not self.environment.child(process).stop(timeout_ms=timeout_ms):
                late.append(process.name)
        _check_any_ran(processes, [ran])
        return late

    def stop(self, processes: Sequence[EnvironmentProcess]) -> None:
        """SIGSTOP. OperationalFailure when none runs."""
        _check_any_ran(processes, [self._send(process, signal.SIGSTOP, self.stopped) for process in processes])

    def _send(self, process: EnvironmentProcess, number: signal.Signals, noted: list[EnvironmentProcess]) -> bool:
        """Send a signal; `noted` gains the process if it runs. False if it does not run."""
        # Noted before the signal: a host that gives no answer may have delivered it all the same.
        noted.append(process)
        has_run = self.environment.child(process).send(number)
        if not has_run:
            noted.remove(process)
        return has_run

    def resume(self, processes: Sequence[EnvironmentProcess]) -> None:
        """SIGCONT."""
        for process in processes:
            self.environment.child(process).send(signal.SIGCONT)
            if process in self.stopped:
                self.stopped.remove(process)

    def fill_disk(self, processes: Sequence[EnvironmentProcess], *, may_stay_down: bool = False) -> None:
        """Keep processes from writing to files, as on a full disk. Such a process may end; the end
        of the drill starts it again. OperationalFailure when none runs.
        """
        ran = []
        for process in processes:
            # Noted before the change, as in `_send`.
            noted = [self.full] if may_stay_down else [self.full, self.ended]
            for each in noted:
                each.append(process)
            ran.append(self.environment.child(process).limit_files(is_full=True))
            if not ran[-1]:
                for each in noted:
                    each.remove(process)
        _check_any_ran(processes, ran)

    def free_disk(self, processes: Sequence[EnvironmentProcess]) -> None:
        """Let processes write again."""
        for process in processes:
            self.environment.child(process).limit_files(is_full=False)
            if process in self.full:
                self.full.remove(process)

    def start(self, processes: Sequence[EnvironmentProcess]) -> None:
        """Start the processes that do not run, in order. Raises OperationalFailure when one has no
        command.
        """
        for process in processes:
            if not process.command:
                raise OperationalFailure(f"{process.name} cannot be started: the environment gives no command for it")
            if self.environment.child(process).pid() is None:
                self.environment.child(process).start()
            if process in self.ended:
                self.ended.remove(process)

    def restore(self, *, starts_ended: bool) -> list[str]:
        """Continue stopped processes and start ended ones. Returns the failures as sentences."""
        problems = []
        for process in tuple(self.stopped):
            try:
                self.environment.child(process).send(signal.SIGCONT)
                self.stopped.remove(process)
            except (OperationalFailure, OSError) as error:
                problems.append(f"{process.name}: {error}")
        for process in tuple(self.full):
            try:
                self.free_disk([process])
            except (OperationalFailure, OSError) as error:
                problems.append(f"{process.name}: {error}")
        if starts_ended:
            # Processes start in the order of the environment: a broker needs its ZooKeeper.
            order = [process for site in self.environment.sites.values() for process in site.processes]
            for process in sorted(self.ended, key=lambda ended: order.index(ended) if ended in order else len(order)):
                try:
                    self.start([process])
                except (OperationalFailure, OSError) as error:
                    problems.append(f"{process.name}: {error}")
        return problems


def _check_any_ran(processes: Sequence[EnvironmentProcess], ran: Sequence[bool]) -> None:
    """OperationalFailure when no process ran: a fault without effect would make a drill pass that
    has tested nothing. Some processes of a site may have ended by an earlier step.
    """
    if not any(ran):
        names = ", ".join(process.name for process in processes)
        raise OperationalFailure(f"{names}: not running, so the step has no effect")


@dataclass(slots=True)
class HostFaults:
    """Changes clocks and name resolution of whole hosts, and remembers what must be restored."""

    environment: Environment
    clock_steps: dict[str, int] = field(default_factory=dict)
    broken_names: set[str] = field(default_factory=set)

    def step_clock(self, host: str, by_seconds: int) -> None:
        """Set a host's clock forward or back."""
        self._shell(host).step_clock(by_seconds)
        self.clock_steps[host] = self.clock_steps.get(host, 0) + by_seconds

    def break_names(self, host: str, names: Sequence[str]) -> None:
        """Make names resolve to an address that no machine has, on one host."""
        # Noted before the change: a failed command may have changed the file all the same.
        self.broken_names.add(host)
        self._shell(host).break_names(names)

    def restore(self) -> list[str]:
        """Undo the changes of clocks and names. Returns the failures as sentences."""
        problems = []
        for host, by_seconds in tuple(self.clock_steps.items()):
            try:
                self._shell(host).step_clock(-by_seconds)
                del self.clock_steps[host]
            except OperationalFailure as failure:
                problems.append(str(failure))
        for host in tuple(self.broken_names):
            try:
                self._shell(host).restore_names()
                self.broken_names.remove(host)
            except OperationalFailure as failure:
                problems.append(str(failure))
        return problems

    def _shell(self, host: str) -> RemoteShell:
        return RemoteShell(host, self.environment.host(host).command)


def attributes_of(**values: Any) -> dict[str, int]:
    """A toxic's attributes without those that are zero."""
    return {name: int(value) for name, value in values.items() if value}
