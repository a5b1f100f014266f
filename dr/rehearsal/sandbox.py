"""The parts of a machine that a rehearsal needs: clones of the standby's logs, and a site that
serves them. `cli/recovery/rehearsing` implements both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from dr.sites.core.positions import PartitionPosition
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition

SANDBOX_USER: Final = "rehearsal"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloned:
    """The finished clones. `ends`: the end of each carried partition's clone; `absent`: carried
    partitions without a log on this machine.
    """

    ends: Mapping[TopicPartition, int]
    absent: tuple[TopicPartition, ...]
    shared_bytes: int
    copied_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAddresses:
    """The addresses of a sandbox, and the login of its only user."""

    bootstrap_servers: str
    agent: str
    password: str = field(repr=False)

    @property
    def client_options(self) -> dict[str, str]:
        """Kafka's client options by which this run logs in."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="{SANDBOX_USER}" password="{self.password}";',
        }


class Sandbox(Protocol):
    """A site that shares only log contents with other sites: it has its own ports, ZooKeeper chroot
    and cluster id, and its link record contains no address of another site. Its clients log in with
    a password that only this run has, because the clones contain records that the standby's own
    listeners protect.
    """

    async def clear(self) -> str:
        """Remove the remains of an interrupted rehearsal; return a description, empty if there were
        none. Raises OperationalFailure if that rehearsal still runs.
        """
        ...

    async def clone(self, record: LinkRecord, positions: Mapping[TopicPartition, PartitionPosition]) -> Cloned:
        """Clone the internal topics first and then the carried partitions, each up to its safe
        end, so that no group is ahead of the records. OperationalFailure.
        """
        ...

    async def start(self) -> SandboxAddresses:
        """Create the site and start its broker. Raises OperationalFailure."""
        ...

    def shared_file_changes(self) -> list[str]:
        """Describe the files that the clones share with the standby and that have changed."""
        ...

    async def drop(self) -> None:
        """Stop the broker and remove everything; may be called at any time. Raises
        OperationalFailure.
        """
        ...
