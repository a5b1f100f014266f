"""The same stories for every client that can produce, read, join, transact and administer.

Content, order and offsets are compared, not exit codes: records that a client produces are read
from the leader's log, and records that it reads were written there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tests.compatibility.cells import Check, Column, NotOffered, Row
from tests.compatibility.site import Site
from wire.batches.record_batch import Compression

RECORDS = 100
COMPRESSION_TYPES: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""Values of `compression.type` that name a codec, and the codec of the batches in the log."""
ALTERNATIONS = 20
RETENTION_MS, LONGER_RETENTION_MS = "3600000", "7200000"


class Read(NamedTuple):
    """A record as a client saw it."""

    partition: int
    offset: int
    value: bytes


class TopicShape(NamedTuple):
    """A topic as a client's admin calls describe it."""

    partitions: int
    replicas: int
    retention_ms: str


class Client(Protocol):
    """A client in a test's hands. Calls block until they are done, and raise when they fail. A test
    never calls a feature that the client lacks.
    """

    name: str

    def version(self) -> str:
        """Name and version of the library."""

    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        """Send these to partition 0 in order and wait until all are acknowledged by all
        replicas.
        """

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        """The first records of partition 0."""

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        """Read so many as a member of a group, from the start where it has no offset; commit
        exactly those and leave.
        """

    def transact(
        self, servers: str, topic: str, identity: str, batches: Sequence[tuple[Sequence[bytes], bool]]
    ) -> None:
        """A transaction for each batch, committed or aborted as it says, to partition 0."""

    def copy(self, servers: str, source: str, target: str, group: str, identity: str, count: int) -> None:
        """Copy so many records as a member of a group, whose offsets are committed in the same
        transactions.
        """

    def create_topic(self, servers: str, topic: str, partitions: int, replicas: int, retention_ms: str) -> None:
        """Create a topic with this many replicas. A client that cannot set the number leaves it to
        the site, whose default is the same.
        """

    def describe_topic(self, servers: str, topic: str) -> TopicShape:
        """The topic's partitions, replicas and retention."""

    def set_retention(self, servers: str, topic: str, retention_ms: str) -> None:
        """Change a config."""

    def add_partitions(self, servers: str, topic: str, total: int) -> None:
        """Grow a topic."""

    def list_groups(self, servers: str) -> set[str]:
        """The groups of all brokers."""

    def delete_topic(self, servers: str, topic: str) -> None:
        """Delete a topic."""


class OffersNothing:
    """For clients that lack some features: those are declared as not offered, and never called."""

    def transact(
        self, servers: str, topic: str, identity: str, batches: Sequence[tuple[Sequence[bytes], bool]]
    ) -> None:
        raise NotImplementedError(topic)

    def copy(self, servers: str, source: str, target: str, group: str, identity: str, count: int) -> None:
        raise NotImplementedError(target)

    def create_topic(self, servers: str, topic: str, partitions: int, replicas: int, retention_ms: str) -> None:
        raise NotImplementedError(topic)

    def describe_topic(self, servers: str, topic: str) -> TopicShape:
        raise NotImplementedError(topic)

    def set_retention(self, servers: str, topic: str, retention_ms: str) -> None:
        raise NotImplementedError(topic)

    def add_partitions(self, servers: str, topic: str, total: int) -> None:
        raise NotImplementedError(topic)

    def list_groups(self, servers: str) -> set[str]:
        raise NotImplementedError(servers)

    def delete_topic(self, servers: str, topic: str) -> None:
        raise NotImplementedError(topic)


def row_of(
    client: Client,
    *,
    not_offered: Mapping[Column, str] | None = None,
    protocols: Sequence[str] = ("classic",),
    may_abort: bool = True,
    may_copy: bool = True,
    may_alternate: bool = False,
    may_decompress: bool = False,
) -> Row:
    """The row of a client to which all stories apply but those it does not offer."""
    stories: dict[Column, Check] = {
        Column.PRODUCE: lambda site: check_produce(client, site),
        Column.CONSUME: lambda site: check_consume(client, site),
        Column.GROUPS: lambda site: check_groups(client, site, protocols),
        Column.TRANSACTIONS: lambda site: check_transactions(client, site, may_abort=may_abort, may_copy=may_copy),
        Column.ADMIN: lambda site: check_admin(client, site),
    }
    if may_alternate:
        stories[Column.ALTERNATIONS] = lambda site: check_alternations(client, site)
    if may_decompress:
        stories[Column.COMPRESSION] = lambda site: check_compression(client, site)
    declared = {column: NotOffered(reason) for column, reason in (not_offered or {}).items()}
    return Row(name=client.name, version=client.version, missing=client.missing, cells={**stories, **declared})


def values(first: int, end: int) -> list[bytes]:
    """Values that say which they are."""
    return [b"value-%d" % number for number in range(first, end)]


def check_produce(client: Client, site: Site) -> str:
    """The client's records are in the log once and in order."""
    topic = site.create_topic("produced")
    client.produce(site.bootstrap_servers, topic, values(0, RECORDS))
    found = site.read(topic)
    assert found == list(enumerate(values(0, RECORDS))), f"the log holds {_shortened(found)}"
    return f"{RECORDS} records, acknowledged by all replicas, in order"


def check_consume(client: Client, site: Site) -> str:
    """It reads what is in the log, plain and compressed, with its offsets."""
    topic = site.create_topic("consumed")
    site.write(topic, values(0, RECORDS // 2))
    site.write(topic, values(RECORDS // 2, RECORDS), compression=Compression.GZIP)
    found = client.consume(site.bootstrap_servers, topic, RECORDS, "read_uncommitted")
    assert found == [Read(0, offset, value) for offset, value in enumerate(values(0, RECORDS))], _shortened(found)
    return f"{RECORDS} records with their offsets, plain and gzip"


def check_groups(client: Client, site: Site, protocols: Sequence[str]) -> str:
    """A member reads part of a topic and commits, the next one goes on there: each record once, and
    the offsets add up.
    """
    for protocol in protocols:
        topic, group = site.create_topic("shared", partitions=3), site.fresh(f"group-{protocol}")
        for partition in range(3):
            site.write(topic, values(partition * 30, partition * 30 + 30), partition=partition)
        taken: list[Read] = []
        for count in (50, 40):
            taken += client.join(site.bootstrap_servers, topic, group, count, protocol)
            site.wait_committed(group, topic, len(taken))
        wanted = [Read(number // 30, number % 30, b"value-%d" % number) for number in range(90)]
        assert sorted(taken) == wanted, f"{protocol}: {_shortened(sorted(taken))}"
    return f"joins, commits, resumes at the committed offsets ({', '.join(protocols)} protocol)"


def check_transactions(client: Client, site: Site, *, may_abort: bool, may_copy: bool) -> str:
    """Readers of committed records see committed transactions whole and aborted ones never; offsets
    go with the records.
    """
    topic, identity = site.create_topic("transacted"), site.fresh("transactional")
    batches = [(values(0, 20), True), (values(20, 40), not may_abort), (values(40, 60), True)]
    client.transact(site.bootstrap_servers, topic, identity, batches)
    written = [value for _, value in site.read(topic)]
    assert written == values(0, 60), f"the log holds {_shortened(written)}"
    wanted = [value for batch, is_committed in batches for value in batch if is_committed]
    found = [read.value for read in client.consume(site.bootstrap_servers, topic, len(wanted), "read_committed")]
    assert found == wanted, f"committed are {_shortened(found)}"
    seen = "commits, aborts, reads what is committed" if may_abort else "commits, reads what is committed"
    if not may_copy:
        return seen
    source, target, group = site.create_topic("source"), site.create_topic("target"), site.fresh("copiers")
    site.write(source, values(0, 40))
    client.copy(site.bootstrap_servers, source, target, group, site.fresh("copier"), 40)
    copied = [read.value for read in client.consume(site.bootstrap_servers, target, 40, "read_committed")]
    assert copied == values(0, 40), f"copied are {_shortened(copied)}"
    site.wait_committed(group, source, 40)
    return f"{seen}, commits a group's offsets in them"


def check_alternations(client: Client, site: Site) -> str:
    """Commits and aborts in turn, one right after the other."""
    topic = site.create_topic("alternated")
    batches = [(values(number * 2, number * 2 + 2), number % 2 == 0) for number in range(ALTERNATIONS)]
    client.transact(site.bootstrap_servers, topic, site.fresh("alternating"), batches)
    wanted = [value for batch, is_committed in batches for value in batch if is_committed]
    found = [read.value for read in client.consume(site.bootstrap_servers, topic, len(wanted), "read_committed")]
    assert found == wanted, f"committed are {_shortened(found)}"
    return f"{ALTERNATIONS} transactions, every second one aborted"


def compressing_topics(site: Site) -> list[str]:
    """A fresh topic of each compression type, in the order of `COMPRESSION_TYPES`."""
    return [site.create_topic(name, configs={"compression.type": name}) for name in COMPRESSION_TYPES]


def compare_compressed(site: Site, topics: Sequence[str]) -> str:
    """The log of each topic holds the records once, in batches of the topic's codec."""
    for topic, codec in zip(topics, COMPRESSION_TYPES.values(), strict=True):
        found = site.read(topic)
        assert found == list(enumerate(values(0, RECORDS))), f"the log of {topic} holds {_shortened(found)}"
        assert site.compressions(topic) == {codec}, f"{topic}: {site.compressions(topic)}"
    return f"{RECORDS} plain records each to topics of {', '.join(COMPRESSION_TYPES)}, and read again"


def check_compression(client: Client, site: Site) -> str:
    """The broker compresses what it sent plain by the topic's `compression.type`, and it reads
    that.
    """
    topics = compressing_topics(site)
    for topic in topics:
        client.produce(site.bootstrap_servers, topic, values(0, RECORDS))
        found = client.consume(site.bootstrap_servers, topic, RECORDS, "read_uncommitted")
        assert found == [Read(0, offset, value) for offset, value in enumerate(values(0, RECORDS))], _shortened(found)
    return compare_compressed(site, topics)


def check_admin(client: Client, site: Site) -> str:
    """A topic's life through its admin calls; each answer is compared at once with the site's
    state.
    """
    servers, topic, replicas = site.bootstrap_servers, site.fresh("administered"), site.replication_factor
    client.create_topic(servers, topic, 2, replicas, RETENTION_MS)
    _expect(client.describe_topic(servers, topic), TopicShape(2, replicas, RETENTION_MS))
    client.set_retention(servers, topic, LONGER_RETENTION_MS)
    _expect(site.configs(topic)["retention.ms"], LONGER_RETENTION_MS)
    client.add_partitions(servers, topic, 4)
    _expect(client.describe_topic(servers, topic), TopicShape(4, replicas, LONGER_RETENTION_MS))
    group = site.fresh("listed")
    site.commit(group, topic)
    assert group in client.list_groups(servers), f"{group} is not among the groups"
    client.delete_topic(servers, topic)
    assert topic not in site.topics(), f"{topic} is still there"
    return "creates, describes, alters, grows and deletes a topic, lists groups"


def _expect(found: object, wanted: object) -> None:
    assert found == wanted, f"{found} instead of {wanted}"


def _shortened(found: Sequence[object]) -> str:
    return f"{len(found)} records, {', '.join(map(str, found[:3]))} ..." if found else "nothing"
