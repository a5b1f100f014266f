"""Names a source topic at the target of a translate link: with a prefix as MirrorMaker 2 does, with
the same name, or by a table.

The prefix policy names as MirrorMaker 2's DefaultReplicationPolicy does (KIP-382), the identity
policy as its IdentityReplicationPolicy (which also renames heartbeats). Names alone protect the
prefix policy against loops; the other policies use the producer ids of mirrors
(`mirror/translate/provenance.py`).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from msgspec import Struct, field

HEARTBEATS = "heartbeats"

LEGAL_NAME = r"[A-Za-z0-9._-]{1,249}"

INTERNAL_PATTERNS = (r"__.*", r"\..*", r"antipode-(offset-map|group-offsets)\..*")
"""Topics that a translate link never mirrors, regardless of its blacklist: topics that MirrorMaker
2 regards as internal by their names (two underscores, or a full stop), and the internal topics of
our mirrors.
"""


class NamingPolicy(enum.Enum):
    """The way in which topics are named at the target."""

    PREFIX = "prefix"
    IDENTITY = "identity"
    TABLE = "table"


class Naming(Struct, frozen=True, kw_only=True):
    """Names of one link. With TABLE a topic that the table does not name keeps its name."""

    policy: NamingPolicy
    source_alias: str
    target_alias: str
    separator: str = "."
    # True if MirrorMaker 2's own topics use this separator too, instead of a full stop as before
    # KIP-690.
    separates_internal_topics: bool = True
    table: Mapping[str, str] = field(default_factory=dict)

    def target_name(self, topic: str) -> str:
        """The topic at the target."""
        if self.policy is NamingPolicy.PREFIX or (self.policy is NamingPolicy.IDENTITY and topic == HEARTBEATS):
            return f"{self.source_alias}{self.separator}{topic}"
        return self.table.get(topic, topic)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Patterns of topics that must not be mirrored: internal ones, and topics whose names show
        that they came from the target.
        """
        # MirrorMaker 2's internal topics by its rule, with a full stop and with the link's own
        # separator.
        own = [
            pattern
            for separator in sorted({".", self._internal_separator})
            for pattern in (
                f"mm2.*{re.escape(separator)}internal",
                f".*{re.escape(separator)}checkpoints{re.escape(separator)}internal",
            )
        ]
        if self.policy is not NamingPolicy.PREFIX:
            return (*INTERNAL_PATTERNS, *own)
        return (*INTERNAL_PATTERNS, *own, f"{self._prefix_of_target}.+")

    def is_of_target(self, prefix: str) -> bool:
        """True if every topic whose name begins with `prefix` came from the target."""
        return self.policy is NamingPolicy.PREFIX and re.fullmatch(f"{self._prefix_of_target}.*", prefix) is not None

    @property
    def _prefix_of_target(self) -> str:
        """The expression for the beginning of the names of topics that came from the target."""
        separator = re.escape(self.separator)
        return f"(.*{separator})?{re.escape(self.target_alias)}{separator}"

    @property
    def heartbeats(self) -> str | None:
        """A pattern of the heartbeat topics that MirrorMaker 2 mirrors regardless of its filters,
        also those from further upstream; None with a table.
        """
        if self.policy is NamingPolicy.TABLE:
            return None
        return f"(.+{re.escape(self.separator)})?{HEARTBEATS}" if self.policy is NamingPolicy.PREFIX else HEARTBEATS

    @property
    def _internal_separator(self) -> str:
        return self.separator if self.separates_internal_topics else "."

    @property
    def checkpoints_topic(self) -> str:
        """MirrorMaker 2's checkpoints of the link, at the target."""
        separator = self._internal_separator
        return f"{self.source_alias}{separator}checkpoints{separator}internal"

    def offset_syncs_topic(self, *, is_at_target: bool) -> str:
        """MirrorMaker 2's offset syncs: named after the cluster that does not hold them."""
        other, separator = self.source_alias if is_at_target else self.target_alias, self._internal_separator
        return f"mm2-offset-syncs{separator}{other}{separator}internal"


def parse_table(text: str) -> dict[str, str]:
    """`source=target,...` as a table. Raises ValueError for an item without `=`, and for two topics
    that would become one.
    """
    table: dict[str, str] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        source, separator, target = item.partition("=")
        if not separator or not source.strip() or not target.strip():
            raise ValueError(f"{item!r} is not source=target")
        if not re.fullmatch(LEGAL_NAME, target.strip()):
            raise ValueError(
                f"{target.strip()!r} cannot be a topic's name: letters, digits, . _ - are accepted, at most 249"
            )
        table[source.strip()] = target.strip()
    if len(set(table.values())) != len(table):
        raise ValueError("two topics would have one name at the target")
    return table
