"""Finds transactions of which a standby has only a part, and the latest consistent point, which has
no such transactions. Pure.

A marker that a mirrored coordinator wrote names all partitions of its transaction
(`wire/batches/transaction_members.py`). A committed transaction is torn at a standby if some of
these partitions have its commit marker and others do not: records of the others may be missing as
well. Each log is a prefix of the source's log, so in a partition without the marker the transaction
is still open.

Without a consistent point, the present part is committed in all partitions (`due`), so the
transaction ends in the same way everywhere. A consistent point ends each log before the first
commit marker of a torn transaction; the transaction is then open in all partitions, and is aborted.
Later records of these logs are removed as well. That may tear other transactions, which are removed
in the same way until no torn one is left. Of all points without torn transactions this one keeps
the most records, because it removes only markers that must go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from dr.sites.core.loss import LossAccount
from dr.sites.core.torn_transaction import TornTransaction
from wire.batches.transaction_members import TransactionMembers
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition


class CommitMarker(NamedTuple):
    """A commit marker in one partition's log."""

    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    members: TransactionMembers


class _Key(NamedTuple):
    transactional_id: str
    producer_id: int
    decided_at_ms: int


class _Decided(Struct):
    """The markers of one committed transaction: where they are, and where they are missing."""

    lacking: set[TopicPartition]
    markers: dict[TopicPartition, CommitMarker] = field(default_factory=dict)


class TornSurvey(Struct, frozen=True, kw_only=True):
    """The result for a site's logs. `ends`: the new ends of the logs that are truncated to a
    consistent point; `undone_transactions` counts the transactions that it removes, including the
    torn ones.
    """

    torn: tuple[TornTransaction, ...] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    undone_transactions: int = 0
    due: Mapping[TopicPartition, tuple[CommitMarker, ...]] = field(default_factory=dict)
    """For each partition without the marker of a torn transaction, that marker from another
    partition.
    """


def survey(
    markers: Mapping[TopicPartition, Sequence[CommitMarker]],
    *,
    is_carried: Callable[[str], bool],
    since_ms: int = 0,
) -> TornSurvey:
    """Compute the survey from the commit markers of each partition's log. Transactions decided
    before `since_ms` count as complete: their markers may be below the range that was read.
    """
    known = _transactions(markers, is_carried, since_ms)
    # without any marker the standby has no commit of the transaction, so nothing of it is torn
    torn = {key: decided for key, decided in known.items() if decided.lacking and decided.markers}
    due: dict[TopicPartition, list[CommitMarker]] = {}
    for decided in torn.values():
        for place in decided.lacking:
            due.setdefault(place, []).append(next(iter(decided.markers.values())))
    named = tuple(_torn(key, decided) for key, decided in sorted(torn.items()))
    ends, undone = _cut(known, markers, list(torn))
    return TornSurvey(
        torn=named,
        ends=ends,
        undone_transactions=undone,
        due={place: tuple(found) for place, found in due.items()},
    )


def _transactions(
    markers: Mapping[TopicPartition, Sequence[CommitMarker]], is_carried: Callable[[str], bool], since_ms: int
) -> dict[_Key, _Decided]:
    found: dict[_Key, _Decided] = {}
    for place, marker, key in _each(markers):
        # older transactions were complete at the last failover, and their markers may be expired
        # since
        if marker.members.decided_at_ms < since_ms:
            continue
        decided = found.get(key)
        if decided is None:
            # a link may mirror some of the transaction's topics only
            members = (TopicPartition(*at) for at in marker.members.partitions)
            decided = found[key] = _Decided({at for at in members if is_carried(at.topic)})
        decided.markers[place] = marker
        # A partition that holds the marker has the whole transaction up to it.
        decided.lacking.discard(place)
    return found


def _each(
    markers: Mapping[TopicPartition, Sequence[CommitMarker]],
) -> Iterator[tuple[TopicPartition, CommitMarker, _Key]]:
    for place, found in markers.items():
        for marker in found:
            yield place, marker, _key(marker)


def _key(marker: CommitMarker) -> _Key:
    return _Key(marker.members.transactional_id, marker.producer_id, marker.members.decided_at_ms)


def _torn(key: _Key, decided: _Decided) -> TornTransaction:
    first = next(iter(decided.markers.values()))
    return TornTransaction(
        transactional_id=key.transactional_id,
        producer_id=key.producer_id,
        producer_epoch=first.producer_epoch,
        decided_at_ms=key.decided_at_ms,
        kept=tuple(str(place) for place in sorted(decided.markers)),
        lacking=tuple(str(place) for place in sorted(decided.lacking)),
    )


def _cut(
    known: Mapping[_Key, _Decided], markers: Mapping[TopicPartition, Sequence[CommitMarker]], torn: list[_Key]
) -> tuple[dict[TopicPartition, int], int]:
    ends: dict[TopicPartition, int] = {}
    undone = set(torn)
    left = list(torn)
    while left:
        for place, marker in known[left.pop()].markers.items():
            end = ends.get(place)
            # A truncation at or before this marker has already removed it.
            if end is not None and end <= marker.offset:
                continue
            ends[place] = marker.offset
            # the truncation removes later markers as well: their transactions are torn by it and go
            # the same way
            for other in markers[place]:
                key = _key(other)
                if marker.offset <= other.offset and key in known and key not in undone:
                    undone.add(key)
                    left.append(key)
    return ends, len(undone)


def with_transactions(kept: LossAccount, record: LinkRecord, found: TornSurvey, problem: str) -> LossAccount:
    """The account with the results for transactions under the link's record."""
    is_undone = record.is_cut_consistent
    return replace(
        kept,
        torn=tuple(replace(one, is_undone=is_undone) for one in found.torn),
        undone_transactions=found.undone_transactions if is_undone else 0,
        transactions_problem=problem,
    )
