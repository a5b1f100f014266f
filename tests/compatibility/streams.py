"""A Kafka Streams word count (`programs/java/WordCount.java`): repartition topic, changelog,
restored state, exactly_once_v2.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from deploy import apache_kafka, client_programs, jar_sets
from tests.compatibility import java_programs
from tests.compatibility.cells import Column, Row
from tests.compatibility.commands import WITHIN_S
from tests.compatibility.environments import SLOW
from tests.compatibility.site import Site
from tests.support.clients.transactional_clients import read_values
from tests.support.eventually import eventually_sync

SOURCE = client_programs.SOURCES / "java" / "WordCount.java"
WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")
LINES = 200


class WordCount:
    """One application with its topics; its program can be started, closed and killed."""

    def __init__(self, site: Site, guarantee: str) -> None:
        self._site = site
        self._guarantee = guarantee
        self.source = site.create_topic("lines", partitions=2)
        self.target = site.create_topic("counts")
        self.application = site.fresh("word-count")
        self._wanted: Counter[str] = Counter()
        self._lines = 0
        self._starts = 0

    def write(self, count: int = LINES) -> None:
        """More lines, dealt out to both partitions."""
        given: tuple[list[bytes], list[bytes]] = ([], [])
        for number in range(self._lines, self._lines + count):
            line = [WORDS[number % len(WORDS)], WORDS[number * 3 % len(WORDS)], WORDS[number // 7 % len(WORDS)]]
            self._wanted.update(line)
            given[number % 2].append(" ".join(line).encode())
        self._lines += count
        for partition, values in enumerate(given):
            self._site.write(self.source, values, partition=partition)

    def start(self) -> subprocess.Popen[bytes]:
        """The program with a new state folder. It restores its state from the changelog."""
        self._starts += 1
        state = self._site.scratch / f"{self.application}-{self._starts}"
        servers = self._site.bootstrap_servers
        arguments = [servers, self.source, self.target, self.application, self._guarantee, str(state)]
        command = apache_kafka.program(str(SOURCE), *arguments, more=(jar_sets.KAFKA_EXTENSIONS,))
        with Path(f"{state}.log").open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def wait_counted(self, program: subprocess.Popen[bytes]) -> None:
        """Wait until the last count of every word is the right one."""

        def is_counted() -> bool:
            assert program.poll() is None, f"the program ended with {program.returncode}"
            found = dict(_counts(self.values()))
            assert found == self._wanted, f"{found} instead of {dict(self._wanted)}"
            return True

        eventually_sync(is_counted, WITHIN_S * 1000)

    def values(self) -> list[bytes]:
        """The committed records of the target, in order."""
        return read_values(self._site.bootstrap_servers, self.target, 1)[0]

    def wait_committed(self) -> None:
        """Wait until the application's group is at the end of the source."""
        self._site.wait_committed(self.application, self.source, self._lines)


def _counts(values: Sequence[bytes]) -> list[tuple[str, int]]:
    return [(word, int(count)) for word, count in (value.decode().split() for value in values)]


def _close(program: subprocess.Popen[bytes]) -> None:
    """In order: it leaves its group and has committed everything."""
    assert program.stdin is not None
    program.stdin.close()
    code = program.wait(WITHIN_S)
    assert code == 0, f"the program ended with {code}"


def check_produce(site: Site) -> str:
    """The counts of every word are written."""
    counting = WordCount(site, "at_least_once")
    counting.write()
    program = counting.start()
    try:
        counting.wait_counted(program)
        _close(program)
    finally:
        program.kill()
    return f"word counts of {LINES} lines, through a repartition topic"


def check_consume(site: Site) -> str:
    """A second start without local state goes on counting: the changelog was read back."""
    counting = WordCount(site, "at_least_once")
    for _ in range(2):
        counting.write()
        program = counting.start()
        try:
            counting.wait_counted(program)
            _close(program)
        finally:
            program.kill()
    return "reads its source, and its state back from the changelog after a restart"


def check_groups(site: Site) -> str:
    """Two instances share the source; one leaves, the other continues; the group's offsets are at
    the end.
    """
    counting = WordCount(site, "at_least_once")
    counting.write()
    programs = [counting.start(), counting.start()]
    try:
        counting.wait_counted(programs[0])
        _close(programs[0])
        counting.write()
        counting.wait_counted(programs[1])
        counting.wait_committed()
        _close(programs[1])
    finally:
        for program in programs:
            program.kill()
    return "two instances share the work, one takes over from the other, offsets committed"


def check_transactions(site: Site) -> str:
    """exactly_once_v2: killed in the middle and started again, no line is counted twice or not at
    all.
    """
    counting = WordCount(site, "exactly_once_v2")
    counting.write()
    killed = counting.start()
    try:
        eventually_sync(lambda: len(counting.values()) > 0, WITHIN_S * 1000)
        counting.write()
    finally:
        killed.kill()
        killed.wait()
    program = counting.start()
    try:
        counting.wait_counted(program)
        counting.wait_committed()
        _close(program)
    finally:
        program.kill()
    for word in WORDS:
        of_word = [count for name, count in _counts(counting.values()) if name == word]
        assert of_word == sorted(set(of_word)), f"counts of {word} go back or repeat: {of_word}"
    return "exactly_once_v2: killed and started again, every line counted once"


def check_admin(site: Site) -> str:
    """It creates its internal topics with their replicas and configs."""
    counting = WordCount(site, "at_least_once")
    counting.write(10)
    program = counting.start()
    try:
        counting.wait_counted(program)
        _close(program)
    finally:
        program.kill()
    internal = {f"{counting.application}-counts-{kind}" for kind in ("changelog", "repartition")}
    assert internal <= set(site.topics()), f"{internal - set(site.topics())} are not there"
    assert all(site.replicas(topic) == {site.replication_factor} for topic in internal)
    assert site.configs(f"{counting.application}-counts-changelog")["cleanup.policy"] == "compact"
    return "creates its repartition topic and its compacted changelog"


def missing() -> str:
    """Whether Streams has been fetched."""
    extensions = jar_sets.KAFKA_EXTENSIONS
    if extensions.is_there:
        return java_programs.missing()
    return f"Kafka Streams {extensions.version} is not in the parts folder: `make setup-clients` fetches it by Maven"


def rows() -> tuple[Row, ...]:
    """Its one row."""
    cells = {
        Column.PRODUCE: check_produce,
        Column.CONSUME: check_consume,
        Column.GROUPS: check_groups,
        Column.TRANSACTIONS: check_transactions,
        Column.ADMIN: check_admin,
    }
    return (
        Row(
            name="Kafka Streams word count",
            version=java_programs.version,
            missing=missing,
            cells=cells,
            environments=SLOW,
        ),
    )
