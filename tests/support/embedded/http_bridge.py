"""An HTTP bridge as a process, and a client that speaks API v2 and v3 with it over real HTTP."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from runtime.children import Child
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes

REPOSITORY = Path(__file__).parents[3]
V2 = "application/vnd.kafka.v2+json"
JSON_V2 = "application/vnd.kafka.json.v2+json"
BINARY_V2 = "application/vnd.kafka.binary.v2+json"
TIMEOUT_S = 120.0
LOAD_RECORDS_MAX = 100_000


class BridgeClient:
    """Requests to a bridge at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port, for a socket."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(self.address, timeout=TIMEOUT_S)

    @property
    def cluster(self) -> str:
        """The path that requests of v3 begin with."""
        return f"/v3/clusters/{self.http.get('/health').json()['cluster_id']}"

    def new_topic(self, *, partitions: int = 1, **configs: str) -> str:
        """A topic with a name of its own, ready to be written to."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        document = {
            "topic_name": name,
            "partitions_count": partitions,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        made = self.http.post(f"{self.cluster}/topics", json=document)
        assert made.status_code == 201, made.text
        eventually_sync(lambda: self.has_leaders(name, partitions))
        return name

    def has_leaders(self, topic: str, partitions: int) -> bool:
        """True if every partition has a leader."""
        answer = self.http.get(f"/topics/{topic}/partitions")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return len(found) == partitions and all(item["leader"] >= 0 for item in found)

    def produce(
        self, topic: str, records: Sequence[Mapping[str, Any]], *, content_type: str = JSON_V2
    ) -> list[dict[str, Any]]:
        """Records by v2, all of them acknowledged."""
        answer = self.post(f"/topics/{topic}", {"records": records}, content_type=content_type)
        assert answer.status_code == 200, answer.text
        offsets: list[dict[str, Any]] = answer.json()["offsets"]
        assert all(item["error_code"] is None for item in offsets), offsets
        return offsets

    def post(self, path: str, document: Any, *, content_type: str = V2) -> httpx.Response:
        """Post a document to a path."""
        return self.http.post(path, content=json.dumps(document), headers={"content-type": content_type})

    def stream(self, topic: str, pieces: Iterable[bytes]) -> list[dict[str, Any]]:
        """Records by v3 on one chunked request; the lines of the answer."""
        headers = {"content-type": "application/json"}
        answer = self.http.post(f"{self.cluster}/topics/{topic}/records", content=pieces, headers=headers)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def instance(self, group: str, **settings: Any) -> Instance:
        """A new consumer instance, from the start where its group has no offsets; settings with
        underscores for dots.
        """
        given = {"auto_offset_reset": "earliest", "format": "json", "fetch_min_bytes": 1, **settings}
        made = self.post(f"/consumers/{group}", {key.replace("_", "."): value for key, value in given.items()})
        assert made.status_code == 200, made.text
        return Instance(self, made.json()["base_uri"].removeprefix(self.url))


class Instance:
    """A consumer instance of API v2."""

    def __init__(self, bridge: BridgeClient, path: str) -> None:
        self.bridge = bridge
        self.path = path

    def post(self, what: str, document: Any) -> httpx.Response:
        """Post a document to a part of the instance."""
        return self.bridge.post(f"{self.path}/{what}", document)

    def done(self, what: str, document: Any) -> None:
        """Send the document, and check that the request succeeded."""
        answer = self.post(what, document)
        assert answer.status_code in (200, 204), answer.text

    def get(self, what: str, **query: Any) -> httpx.Response:
        """A GET request for a part of the instance."""
        return self.bridge.http.get(f"{self.path}/{what}", params=query)

    def ask(self, what: str, document: Any) -> Any:
        """A request with a JSON document."""
        answer = self.bridge.http.request(
            "GET", f"{self.path}/{what}", content=json.dumps(document), headers={"content-type": V2}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def subscribed(self, *topics: str) -> Instance:
        """The instance, subscribed."""
        self.done("subscription", {"topics": topics})
        return self

    def read(self, **query: Any) -> list[dict[str, Any]]:
        """One read."""
        answer = self.get("records", **query)
        assert answer.status_code == 200, answer.text
        records: list[dict[str, Any]] = answer.json()
        return records

    def read_until(self, count: int, **query: Any) -> list[dict[str, Any]]:
        """Reads until so many records have come."""
        found: list[dict[str, Any]] = []

        def has_all() -> bool:
            found.extend(self.read(**query))
            return len(found) >= count

        eventually_sync(has_all)
        return found

    def delete(self) -> None:
        """Leave the group."""
        answer = self.bridge.http.delete(self.path)
        assert answer.status_code == 204, answer.text


class HttpBridge(BridgeClient):
    """A bridge process that keeps its ports when it is started again."""

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        bootstrap_servers: str,
        *,
        trusted: ssl.SSLContext | None = None,
        **properties: str,
    ) -> None:
        """`trusted`: the bridge serves TLS, with a certificate that this context accepts."""
        http_port, self.metrics_port = free_ports(2)
        super().__init__(f"http{'s' if trusted else ''}://{LOOPBACK}:{http_port}")
        if trusted is not None:
            self.http.close()
            self.http = httpx.Client(base_url=self.url, timeout=TIMEOUT_S, trust_env=False, verify=trusted)
        given = {
            "bootstrap.servers": bootstrap_servers,
            "listeners": self.url,
            "antipode.metrics.listener": f"{LOOPBACK}:{self.metrics_port}",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "bridge.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()), encoding="utf-8")
        child = Child(
            name="bridge",
            command=[sys.executable, "-m", "cli.main", "bridge", "--config", str(file)],
            directory=directory,
            log=directory / "bridge.log",
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        self.process = processes.run(child)
        self.process.wait_ready(self.is_serving)

    def wait_ready(self) -> None:
        """Wait until it answers."""
        self.process.wait_ready(self.is_serving)

    def is_serving(self) -> bool:
        """True if the bridge answers, and Kafka answers the bridge."""
        try:
            return self.http.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    def figure(self, name: str) -> float:
        """The sum of a figure's samples."""
        page = f"http://{LOOPBACK}:{self.metrics_port}/metrics"
        text = httpx.get(page, timeout=TIMEOUT_S, trust_env=False).text
        return sum(_values(text, f"antipode_bridge_{name}"))


def _values(text: str, name: str) -> Iterator[float]:
    for line in text.splitlines():
        if line.startswith((f"{name} ", f"{name}{{")):
            yield float(line.rpartition(" ")[2])


class Load:
    """Sends numbered records, one request after another. `places` has the offset of each
    acknowledged number.
    """

    def __init__(self, url: str, topic: str, *, first: int = 0) -> None:
        self.places: dict[int, int] = {}
        self.failures: list[str] = []
        self._url = url
        self._topic = topic
        self._first = first
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_acknowledged(self, more: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = len(self.places) + more
        eventually_sync(lambda: len(self.places) >= goal or self.failures)
        assert not self.failures, self.failures

    def _send(self) -> None:
        client = BridgeClient(self._url)
        with client.http:
            for number in range(self._first, self._first + LOAD_RECORDS_MAX):
                if self._is_over.is_set():
                    return
                try:
                    self.places[number] = client.produce(self._topic, [{"value": number}])[0]["offset"]
                except AssertionError as error:
                    self.failures.append(str(error))
                    return
