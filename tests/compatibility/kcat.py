"""kcat, the command line of librdkafka, of the version that the machine has."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

from tests.compatibility.cells import Column, Row
from tests.compatibility.checks import OffersNothing, Read, row_of
from tests.compatibility.commands import lines, reads, run

FORMAT = "%p %o %s\n"


class Kcat(OffersNothing):
    """Its producer, consumer, group and transactional modes; administration is declared as not
    offered.
    """

    name = "kcat"

    def version(self) -> str:
        """The version that kcat reports."""
        if self.missing():
            return "kcat"
        said = re.search(r"Version (\S+) .*librdkafka (\S+)", run(["kcat", "-V"]).decode())
        assert said is not None, "kcat does not tell its version"
        return f"kcat {said[1]}, librdkafka {said[2]}"

    def missing(self) -> str:
        """The reason if kcat is not on PATH."""
        return "" if shutil.which("kcat") else "kcat is not on PATH (Debian: apt-get install kcat)"

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        run(["kcat", "-P", "-b", servers, "-t", topic, "-p", "0", "-X", "acks=all"], lines(values))

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        arguments = ["-b", servers, "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-q", "-f", FORMAT]
        return reads(run(["kcat", "-C", *arguments, "-X", f"isolation.level={isolation}"]))

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        arguments = ["-b", servers, "-G", group, "-c", str(count), "-q", "-f", FORMAT]
        return reads(run(["kcat", *arguments, "-X", "auto.offset.reset=earliest", topic]))

    def transact(
        self, servers: str, topic: str, identity: str, batches: Sequence[tuple[Sequence[bytes], bool]]
    ) -> None:
        for values, is_committed in batches:
            assert is_committed, "it aborts only when it fails"
            arguments = ["-b", servers, "-t", topic, "-p", "0", "-X", f"transactional.id={identity}"]
            run(["kcat", "-P", *arguments], lines(values))


def rows() -> tuple[Row, ...]:
    """Its one row."""
    not_offered = {Column.ADMIN: "it lists metadata and changes nothing"}
    return (row_of(Kcat(), not_offered=not_offered, may_abort=False, may_copy=False, may_decompress=True),)
