"""One pair of sites from `antipode up`, and the command `antipode` as a person types it."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from typing import Any

from kio.schema.errors import ErrorCode

from runtime.addresses import parse_host_port
from runtime.clock import SystemClock
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.embedded.embedded_sites import EmbeddedSites
from tests.support.eventually import eventually_sync

AT_HOME = "home-.*"
"""Topics that the link does not carry."""
CREATE_TOPICS = 19


class CommandPair:
    """Sites a and b, and the command."""

    def __init__(self, sites: EmbeddedSites) -> None:
        self.sites = sites

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A command that must end with the code, in good order."""
        ended = self.sites.command(*arguments)
        assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The output with `--output json`: one line."""
        printed = self.run(*arguments, "--output", "json", code=code).stdout
        assert printed.count("\n") == 1, printed
        return json.loads(printed)

    def well(self) -> dict[str, Any]:
        """The sites' status, as soon as the command ends with 0: on a busy machine a process may
        not answer for a moment.
        """
        return eventually_sync(lambda: dict(self.json("status")))

    def at(self, site: str, *arguments: str) -> tuple[str, ...]:
        """The arguments with the site's brokers."""
        return (*arguments, "--bootstrap-server", self.sites.bootstrap(site))

    def topics(self, site: str) -> dict[str, int]:
        """Partitions by topic."""
        return {row["topic"]: row["partitions"] for row in self.json(*self.at(site, "topics", "list"))}

    def wait_listed(self, topic: str, partitions: int) -> dict[str, int]:
        """All topics of site a, including this one: b's brokers, which may be asked, learn of a's
        changes a moment later.
        """

        def listed() -> dict[str, int] | None:
            found = self.topics("a")
            return found if found.get(topic) == partitions else None

        return eventually_sync(listed)

    def make_at_home(self, topic: str, *records: bytes) -> None:
        """A topic that no link carries, at a alone, by a's broker itself."""
        with RawClient(parse_host_port(self.sites.bootstrap("a")).port) as client:
            wanted = {"name": topic, "num_partitions": 1, "replication_factor": -1, "assignments": (), "configs": ()}
            values = {"topics": [wanted], "timeout": dt.timedelta(seconds=5), "validate_only": False}
            (made,) = client.call(CREATE_TOPICS, 5, values).topics
            assert made.error_code == ErrorCode.none
            assert (
                client.produce(topic, batch(records, timestamp_ms=SystemClock().now_ms())).error_code == ErrorCode.none
            )

    def produce(self, topic: str, count: int) -> None:
        """Send records to its partition 0."""
        records = [Record(value=b"%d" % number, partition=0) for number in range(count)]
        librdkafka_produce(self.sites.bootstrap("a"), topic, records)
