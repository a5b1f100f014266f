"""The sandbox of a rehearsal on the standby's own machine (`dr/rehearsal/sandbox.py`): clones in
its log directories, a chroot in its ZooKeeper, one broker process.

One rehearsal at a time: a lock on the first log directory, which the kernel releases when the
process ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from cli.recovery.rehearsing.clones import CloneWork, remove_clones
from cli.recovery.rehearsing.site import SandboxSite, remove_chroot, zookeeper_at
from cli.recovery.rehearsing.standby import LogPlaces, StandbyBroker, StandbyTopic, read_topics
from dr.rehearsal.sandbox import Cloned, SandboxAddresses
from dr.sites.core.positions import PartitionPosition
from runtime.process import OperationalFailure
from runtime.supervision import in_thread
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition

COORDINATORS_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


@contextmanager
def one_at_a_time(log_directory: str) -> Iterator[None]:
    """OperationalFailure while another rehearsal works on the directory."""
    try:
        descriptor = os.open(log_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise OperationalFailure(f"log directory {log_directory} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OperationalFailure(f"another rehearsal works on {log_directory}: wait for it") from error
        yield
    finally:
        os.close(descriptor)


class LocalSandbox:
    """See `dr/rehearsal/sandbox.py: Sandbox`."""

    def __init__(self, brokers: Sequence[StandbyBroker]) -> None:
        self._brokers = tuple(brokers)
        self._directories = [path for one in brokers for path in one.settings.log_dirs]
        self._connect = brokers[0].settings.zookeeper_connect
        self._site = SandboxSite(brokers[0], self._directories)
        self._clones = CloneWork(self._directories)
        self._record = LinkRecord()
        self._topics: dict[str, StandbyTopic] = {}

    async def clear(self) -> str:
        """See the protocol."""
        was_running = await in_thread(self._site.stop)
        # Before the chroot: a ZooKeeper that does not answer must not keep the disks full.
        had_clones = await in_thread(remove_clones, self._directories)
        await remove_chroot(self._connect)
        if not (was_running or had_clones):
            return ""
        return "removed what an interrupted rehearsal had left" + (", its broker too" if was_running else "")

    async def clone(self, record: LinkRecord, positions: Mapping[TopicPartition, PartitionPosition]) -> Cloned:
        """See the protocol."""
        self._record = record
        names = sorted({key.topic for key in positions})
        async with zookeeper_at(self._connect) as zookeeper:
            self._topics = await read_topics(zookeeper, [*COORDINATORS_TOPICS, *names])
        places = await in_thread(LogPlaces, self._brokers)
        known = {key: position for key, position in positions.items() if key.topic in self._topics}
        try:
            return await in_thread(self._clones.clone, self._topics, places, known, COORDINATORS_TOPICS)
        except OSError as error:
            raise OperationalFailure(f"the logs cannot be cloned: {error}") from error

    async def start(self) -> SandboxAddresses:
        """See the protocol."""
        await self._site.lay_out(self._record, self._topics, [*self._clones.internal, *self._clones.ends])
        try:
            return await self._site.start()
        except OSError as error:
            raise OperationalFailure(f"the sandbox cannot be started: {error}") from error

    def shared_file_changes(self) -> list[str]:
        """See the protocol."""
        return self._clones.changes()

    async def drop(self) -> None:
        """See the protocol."""
        await self.clear()
