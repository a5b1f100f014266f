"""The topics whose offsets partitions of groups must still forget: they were deleted while the
partition was not loaded. A load that fails, or is replaced by one of a later leadership, passes
them on to the next one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from broker.groups.group_shard import GroupShard


class DeletedTopics:
    """The names of the topics by partition."""

    def __init__(self) -> None:
        self._names: dict[int, frozenset[str]] = {}

    def note(self, partitions: Iterable[int], names: frozenset[str]) -> None:
        """These partitions must forget the topics."""
        for partition in partitions if names else ():
            self._names[partition] = self._names.get(partition, frozenset()) | names

    def forget(self, shard: GroupShard) -> None:
        """Remove the offsets from the partition, if it is loaded."""
        if shard.is_loaded and (names := self._names.pop(shard.partition, None)):
            shard.forget_topics(names)

    def keep_only(self, partitions: Container[int]) -> None:
        """Other partitions are led elsewhere, where groups may have committed offsets in a new
        topic of the same name.
        """
        self._names = {partition: names for partition, names in self._names.items() if partition in partitions}
