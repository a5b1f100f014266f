"""Faults on the line and of processes, against a server that plays toxiproxy. Promised: a fault
that cannot be made or undone is named, however the server refuses it; the other proxies are healed
all the same; a process is restored even if its host did not answer to the signal.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dr.drill.environment import Environment, EnvironmentProcess
from dr.drill.faults import NetworkFaults, ProcessFaults, Toxic
from dr.drill.remote_hosts import RemoteChild
from runtime.children import Child
from runtime.process import OperationalFailure

NO_ANSWER_FOR_S = 5.0
"""The time for which a server that does not answer is silent, so that a caller without a deadline
ends too."""


class PlayedToxiproxy:
    """Proxies x and y; `refusals` has the answers' codes with which it refuses to change them."""

    def __init__(self) -> None:
        self.enabled = {"x": True, "y": True}
        self.toxics: dict[str, list[dict[str, Any]]] = {"x": [], "y": []}
        self.refusals: dict[str, int] = {}
        self.may_answer = threading.Event()
        self.may_answer.set()
        played = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, content: object, status: int = 200) -> None:
                played.may_answer.wait(NO_ANSWER_FOR_S)
                payload = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                with suppress(BrokenPipeError):  # the caller did not wait
                    self.end_headers()
                    self.wfile.write(payload)

            def do_GET(self) -> None:
                parts = self.path.strip("/").split("/")
                if len(parts) == 3:
                    self.answer(played.toxics[parts[1]])
                else:
                    self.answer({name: played.proxy(name) for name in played.enabled})

            def do_POST(self) -> None:
                parts = self.path.strip("/").split("/")
                wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if status := played.refusals.get(parts[1]):
                    self.answer({"error": "address already in use", "status": status}, status)
                elif len(parts) == 3:
                    played.toxics[parts[1]].append(wanted)
                    self.answer(wanted)
                else:
                    played.enabled[parts[1]] = wanted["enabled"]
                    self.answer(played.proxy(parts[1]))

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def proxy(self, name: str) -> dict[str, Any]:
        return {"name": name, "listen": "l", "upstream": "u", "enabled": self.enabled[name], "toxics": []}


@pytest.fixture
def toxiproxy() -> Iterator[PlayedToxiproxy]:
    played = PlayedToxiproxy()
    thread = threading.Thread(target=played.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield played
    played.server.shutdown()
    thread.join()
    played.server.server_close()


@pytest.fixture
def network(toxiproxy: PlayedToxiproxy) -> NetworkFaults:
    link = {"name": "a-b", "source": "a", "target": "b", "proxies": [{"name": "x"}, {"name": "y"}]}
    api = {"api": f"127.0.0.1:{toxiproxy.server.server_port}"}
    return NetworkFaults(Environment.model_validate({"sites": {}, "links": [link], "toxiproxy": api}), "a-b")


@pytest.mark.parametrize("status", [400, 404, 409, 500])
def test_a_proxy_that_stays_cut_is_named_and_the_others_are_healed(
    network: NetworkFaults, toxiproxy: PlayedToxiproxy, status: int
) -> None:
    network.cut(network.selected(), is_silent=False)
    assert toxiproxy.enabled == {"x": False, "y": False}
    toxiproxy.refusals = {"x": status}
    with pytest.raises(OperationalFailure, match="proxy x"):
        network.heal()
    assert toxiproxy.enabled == {"x": False, "y": True}


@pytest.mark.parametrize("status", [400, 404, 409, 500])
def test_a_fault_that_the_server_refuses_fails(network: NetworkFaults, toxiproxy: PlayedToxiproxy, status: int) -> None:
    toxiproxy.refusals = {"y": status}
    with pytest.raises(OperationalFailure, match="proxy y"):
        network.add(network.selected(), [Toxic(kind="latency", attributes={"latency": 1})])
    with pytest.raises(OperationalFailure, match="proxy y"):
        network.cut(network.selected(), is_silent=False)


def test_a_server_that_does_not_answer_is_not_awaited_for_ever(
    network: NetworkFaults, toxiproxy: PlayedToxiproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dr.drill.faults.TOXIPROXY_ANSWERS_WITHIN_S", 0.05)
    toxiproxy.may_answer.clear()
    try:
        with pytest.raises(OperationalFailure, match=r"proxy x.*timed out.*proxy y.*timed out"):
            network.heal()
    finally:
        toxiproxy.may_answer.set()


@pytest.mark.parametrize("fault", ["kill", "terminate", "stop"])
def test_a_process_whose_host_gave_no_answer_to_the_signal_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    sent: list[int] = []

    def no_answer(_: RemoteChild, number: signal.Signals) -> bool:
        sent.append(number)
        if len(sent) == 1:
            raise OperationalFailure("host far does not answer")
        return True

    started: list[str] = []
    monkeypatch.setattr(RemoteChild, "send", no_answer)
    monkeypatch.setattr(RemoteChild, "pid", lambda child: None if sent and fault != "stop" else 1)
    monkeypatch.setattr(RemoteChild, "start", lambda child: started.append(child.name))
    process = EnvironmentProcess(name="broker-1", dir=tmp_path, log=tmp_path / "log", command=("broker",), host="far")
    environment = Environment.model_validate({"sites": {}, "hosts": {"far": {"command": ["ssh", "far"]}}})
    faults = ProcessFaults(environment)
    begin: dict[str, Callable[[], object]] = {
        "kill": lambda: faults.kill([process], may_stay_down=False),
        "terminate": lambda: faults.terminate([process], timeout_ms=1, may_stay_down=False),
        "stop": lambda: faults.stop([process]),
    }
    with pytest.raises(OperationalFailure, match="host far does not answer"):
        begin[fault]()
    assert faults.restore(starts_ended=True) == []
    assert (started, sent[1:]) == (([], [signal.SIGCONT]) if fault == "stop" else (["broker-1"], []))


@pytest.mark.parametrize("fault", ["kill", "terminate", "stop", "fill_disk"])
def test_a_fault_that_meets_no_running_process_fails(tmp_path: Path, fault: str) -> None:
    process = EnvironmentProcess(name="broker-1", dir=tmp_path, log=tmp_path / "log", command=("broker",))
    faults = ProcessFaults(Environment.model_validate({"sites": {}}))
    begin: dict[str, Callable[[], object]] = {
        "kill": lambda: faults.kill([process], may_stay_down=False),
        "terminate": lambda: faults.terminate([process], timeout_ms=1, may_stay_down=False),
        "stop": lambda: faults.stop([process]),
        "fill_disk": lambda: faults.fill_disk([process]),
    }
    with pytest.raises(OperationalFailure, match="broker-1: not running"):
        begin[fault]()
    assert not faults.ended
    assert not faults.stopped
    assert not faults.full


def test_a_site_of_which_a_process_has_ended_before_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Child, "send", lambda child, _: child.name == "broker-1")
    monkeypatch.setattr(Child, "pid", lambda _: None)
    processes = [
        EnvironmentProcess(name=name, dir=tmp_path, log=tmp_path / "log", command=("run",))
        for name in ("zookeeper-a", "broker-1")
    ]
    faults = ProcessFaults(Environment.model_validate({"sites": {}}))
    faults.kill(processes, may_stay_down=False)
    assert [process.name for process in faults.ended] == ["broker-1"]
