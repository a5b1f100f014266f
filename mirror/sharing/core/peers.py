"""The facts that daemons of a shared link register, and the consequences where they disagree.

Each daemon mirrors the partitions of its slots by its own settings. Where those differ, a partition
may lie in the slots of a daemon that does not carry its topic: then it is not mirrored. The
registered settings travel with a daemon's slots, in the metadata of a group or in ZooKeeper;
releases that register slots alone are not judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from mirror.link.core.slots import slot_of
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.protocol.json_documents import parse_json
from wire.rules.links import carries_topic

VALUE_LENGTH_MAX: Final = 200
"""Longer values are registered as their beginning and a digest."""

TRANSLATE: Final = "translate"

ACCEPTED: Final = "the same in the files of all daemons of the link"


class Daemon(NamedTuple):
    """The description that a daemon publishes of itself. `settings` are those that must agree,
    empty of an earlier release; `problem` is what it cannot carry of groups' offsets.
    """

    name: str = ""
    settings: Mapping[str, str] = {}
    topic_whitelist: tuple[str, ...] = ()
    topic_blacklist: tuple[str, ...] = ()
    problem: str = ""

    def carries(self, topic: str) -> bool:
        """True if its filters carry the topic. The filters of an exact link are the link's own; the
        filters of an earlier release are unknown.
        """
        if self.settings.get("link.mode") != TRANSLATE:
            return True
        record = LinkRecord(mode=TRANSLATE, topic_whitelist=self.topic_whitelist, topic_blacklist=self.topic_blacklist)
        return carries_topic(record, topic)


class DaemonShare(NamedTuple):
    """Another daemon of the link and the slots that it has."""

    daemon: Daemon
    slots: frozenset[int]


class Disagreement(NamedTuple):
    """A setting that is not the same here and at another daemon."""

    key: str
    ours: str
    daemon: str
    theirs: str

    @property
    def sentence(self) -> str:
        """The text for operators."""
        ours, theirs = self.ours or "(nothing)", self.theirs or "(nothing)"
        return f"{self.key} is {ours} here and {theirs} at daemon {self.daemon}; accepted is {ACCEPTED}"


class Untaken(NamedTuple):
    """A partition that this daemon would mirror and that is in the slots of a daemon that does not
    mirror it.
    """

    key: TopicPartition
    daemon: str

    @property
    def sentence(self) -> str:
        """The text for operators."""
        return f"no daemon mirrors {self.key}: it is assigned to daemon {self.daemon}, whose filters exclude it"


def shortened(value: str) -> str:
    """A value as it is registered: equal for equal values, and not for others."""
    if len(value) <= VALUE_LENGTH_MAX:
        return value
    return f"{value[:VALUE_LENGTH_MAX]}... (sha256 {hashlib.sha256(value.encode()).hexdigest()[:12]})"


def encode_daemon(daemon: Daemon) -> dict[str, Any]:
    """The daemon as a JSON document."""
    return daemon._asdict()


def decode_daemon(document: Any, *, otherwise_named: str) -> Daemon:
    """The registered facts of a daemon. A daemon without a name registered only its slots; the same
    holds for documents that this release cannot read.
    """
    try:
        return Daemon(
            name=str(document["name"]) or otherwise_named,
            settings={str(key): str(value) for key, value in document["settings"].items()},
            topic_whitelist=tuple(map(str, document["topic_whitelist"])),
            topic_blacklist=tuple(map(str, document["topic_blacklist"])),
            problem=str(document["problem"]),
        )
    except (KeyError, TypeError, AttributeError):
        return Daemon(name=otherwise_named)


def parse_daemon(data: bytes, *, otherwise_named: str) -> Daemon:
    """Parse a daemon's description from a member's metadata or its node, like `decode_daemon`."""
    try:
        document = parse_json(data)["daemon"]
    except (ValueError, KeyError, TypeError):
        document = None
    return decode_daemon(document, otherwise_named=otherwise_named)


def disagreements(own: Daemon, others: Iterable[DaemonShare]) -> tuple[Disagreement, ...]:
    """The settings of other daemons that differ from this daemon's; settings that one of the two
    releases does not register are not compared.
    """
    return tuple(
        Disagreement(key, ours, other.daemon.name, other.daemon.settings[key])
        for other in sorted(others, key=lambda share: share.daemon.name)
        for key, ours in sorted(own.settings.items())
        if key in other.daemon.settings and other.daemon.settings[key] != ours
    )


def untaken(elsewhere: Collection[TopicPartition], others: Iterable[DaemonShare]) -> tuple[Untaken, ...]:
    """The partitions that this daemon leaves to others and whose owner does not carry them."""
    by_slot = {slot: share.daemon for share in others for slot in share.slots}
    found = ((key, by_slot.get(slot_of(key))) for key in sorted(elsewhere))
    return tuple(
        Untaken(key, daemon.name) for key, daemon in found if daemon is not None and not daemon.carries(key.topic)
    )
