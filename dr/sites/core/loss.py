"""The account of a failover: for each partition, the offsets that are kept, the records that are
known to be lost, and whether more may be lost; and the same for groups' offsets.

Offsets below `kept_below` are at the promoted site, byte for byte. Records that the old site
acknowledged at or above it are lost there (and wait in the old site's log). The number is exact if
the source was fenced. Otherwise it comes from the mirror's last knowledge, `last_contact_ms`
before. If the promoted site was a copy with another history, `kept_below` is where the histories
differ, and the records that only it had from there on become visible again. It is stored as JSON
beside the link, at both sites, and in the report.

When the old site is back and all records that only it had are in quarantine,
`dr/sites/core/settlement.py` adds these: then the account is final.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from dr.sites.core.access_rules import AccessLoss
from dr.sites.core.evidence import Promotion
from dr.sites.core.group_offsets import GroupLoss
from dr.sites.core.torn_transaction import TornTransaction
from wire.protocol.ids import UNKNOWN, TopicPartition


class PartitionLoss(Struct, frozen=True, kw_only=True):
    """The account of one partition."""

    topic: str
    partition: int
    kept_below: int
    source_end: int
    is_source_end_exact: bool
    known_lost_records: int
    last_contact_ms: int
    is_protected: bool = True
    """False: the old site had the partition, and the promoted one has nothing of it."""
    returning_records: int = 0
    """Number of records from `kept_below` on that the promoted site has and the old one never had:
    readers see these abandoned records again.
    """
    unproven_end: int = UNKNOWN
    """The end of the promoted site's log if its history is unproven; `kept_below` is UNKNOWN
    then.
    """
    found_first: int = UNKNOWN
    found_end: int = UNKNOWN
    """The end of the records that only the old site had when it returned; they begin at
    `found_first`. Equal offsets mean none, UNKNOWN that the account is not final.
    """
    found_bytes: int = UNKNOWN

    @property
    def found_records(self) -> int:
        """The number of records that only the old site had; UNKNOWN before the account is final."""
        return UNKNOWN if self.found_end == UNKNOWN else self.found_end - self.found_first

    @property
    def difference(self) -> str:
        """Describe in a sentence how the old site's quarantine contradicts the account; empty if it
        does not. More records than known are not a contradiction if the source's end was not exact.
        """
        found = self.found_records
        if self.kept_below == UNKNOWN:
            return ""  # Nothing was accounted.
        is_more = found > self.known_lost_records and self.is_source_end_exact
        if found == UNKNOWN or not (is_more or found < self.known_lost_records):
            return ""
        place = f"{self.topic}-{self.partition}"
        return f"{place}: {self.known_lost_records} records were accounted as lost, and the old site had {found} alone"

    @property
    def sentence(self) -> str:
        """For the operator."""
        return self._accounted + self._found

    @property
    def _found(self) -> str:
        if self.found_end == UNKNOWN:
            return ""
        if not self.found_records:
            return "; the old site is back and had no records of its own"
        return (
            f"; final: only the old site had {self.found_records} records ({self.found_bytes} bytes, offsets {self.found_first} to "
            f"{self.found_end - 1}), which are in its quarantine"
        )

    @property
    def _accounted(self) -> str:
        if not self.is_protected:
            lost = f"{self.known_lost_records} records" if self.is_source_end_exact else "all its records"
            return f"{self.topic}-{self.partition}: not protected: it was not mirrored yet, {lost} and the partition are lost"
        if self.unproven_end != UNKNOWN:
            return (
                f"{self.topic}-{self.partition}: nothing shows that the log, which ends at {self.unproven_end}, is the old site's "
                f"history; it is not known which of its records are kept and which are lost{self._awaited}"
            )
        if self.kept_below == UNKNOWN:
            place = f"{self.topic}-{self.partition}"
            return f"{place}: no broker at the promoted site answers for it; what it keeps is not known{self._awaited}"
        return f"{self.topic}-{self.partition}: everything below offset {self.kept_below} is kept; {self._lost}{self._returning}"

    @property
    def _awaited(self) -> str:
        if self.found_end != UNKNOWN:
            return ""
        return (
            "; the old site's copy shows it when the old site is back and the copy has its own records in quarantine, "
            "or a record that the promoted site has written since"
        )

    @property
    def _lost(self) -> str:
        if self.is_source_end_exact:
            if self.known_lost_records == 0:
                return "nothing is lost"
            return f"exactly {self.known_lost_records} records are lost, up to offset {self.source_end}"
        contact = "never" if self.last_contact_ms == UNKNOWN else f"{self.last_contact_ms} ms before"
        return (
            f"records that the old site acknowledged at or above {self.kept_below} are lost; "
            f"known: {self.known_lost_records} records; last contact {contact}"
        )

    @property
    def _returning(self) -> str:
        if not self.returning_records:
            return ""
        last = self.kept_below + self.returning_records - 1
        return f"; the histories part there: {self.returning_records} abandoned records come back, offsets {self.kept_below} to {last}"


class KeptEnds(Mapping[TopicPartition, int]):
    """The end of the history that a promotion continued, for each partition of which anything is
    kept. Most accounts are read for their epochs alone, by a failover while writers wait, so the
    ends of thousands of partitions are listed when one of them is asked for.
    """

    def __init__(self, losses: tuple[PartitionLoss, ...]) -> None:
        self._losses = losses

    @cached_property
    def _ends(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(item.topic, item.partition): item.kept_below + item.returning_records
            for item in self._losses
            if item.kept_below != UNKNOWN and item.is_protected
        }

    def __getitem__(self, key: TopicPartition) -> int:
        return self._ends[key]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._ends)

    def __len__(self) -> int:
        return len(self._ends)


class LossAccount(Struct, frozen=True, kw_only=True):
    """The account of a whole failover."""

    link: str
    epoch: int
    from_site: str
    to_site: str
    accounted_at_ms: int
    partitions: tuple[PartitionLoss, ...]
    groups: GroupLoss | None = None
    """None in accounts of earlier releases."""
    access: AccessLoss | None = None
    """ACLs, SCRAM users and quotas; None if the mirror carries none, and in accounts of earlier
    releases.
    """
    unprotected: tuple[str, ...] = ()
    """The reasons why the promoted site lacks the topics of which nothing was kept."""
    leader_epoch_floor: int = 0
    """The lowest leader epoch of the promoted site's records, from the new link record; 0 in
    accounts of earlier releases.
    """
    settled_at_ms: int = UNKNOWN
    """The time at which the account became final (Unix ms); UNKNOWN before."""
    torn: tuple[TornTransaction, ...] = ()
    """The committed transactions of which the promoted site had only a part."""
    undone_transactions: int = 0
    """The number of committed transactions that a consistent truncation removed, including torn
    ones.
    """
    transactions_problem: str = ""
    """Why it is not known which transactions are torn."""
    is_planned: bool = False
    """True for a switchover that fenced the former active site; also False in accounts of earlier
    releases.
    """

    @property
    def transaction_sentences(self) -> list[str]:
        """The results for transactions, for the operator."""
        sentences = [one.sentence for one in self.torn]
        if self.undone_transactions > len(self.torn):
            sentences.append(f"{self.undone_transactions} committed transactions are taken out in all")
        if self.transactions_problem:
            sentences.append(f"which transactions are torn is not known: {self.transactions_problem}")
        return sentences

    @property
    def is_final(self) -> bool:
        """True after the old site has returned and its extra records are gone."""
        return self.settled_at_ms != UNKNOWN

    @property
    def found_records(self) -> int:
        """The number of records that only the old site had, in all partitions; 0 before the account
        is final.
        """
        return sum(max(item.found_records, 0) for item in self.partitions)

    @property
    def found_bytes(self) -> int:
        """The size of `found_records` in bytes."""
        return sum(max(item.found_bytes, 0) for item in self.partitions)

    @property
    def differences(self) -> list[str]:
        """The contradictions between the old site's quarantine and the account, in sentences."""
        return [item.difference for item in self.partitions if item.difference]

    @property
    def known_lost_records(self) -> int:
        """Sum over all partitions."""
        return sum(item.known_lost_records for item in self.partitions)

    @property
    def is_exact(self) -> bool:
        """True when nothing unknown remains."""
        are_records = all(item.is_source_end_exact and item.kept_below != UNKNOWN for item in self.partitions)
        return are_records and (self.groups is None or self.groups.is_exact)

    @property
    def loses_nothing(self) -> bool:
        """True if every record and every offset is known to be kept, and no other record exists."""
        has_offsets = self.groups is None or not self.groups.known_lost_offsets
        return self.is_exact and not self.known_lost_records and not self.returning_records and has_offsets

    @property
    def returning_records(self) -> int:
        """Sum over all partitions."""
        return sum(item.returning_records for item in self.partitions)

    @property
    def promotion(self) -> Promotion:
        """Return the facts of this failover that a later one needs."""
        return Promotion(
            epoch=self.epoch,
            to_site=self.to_site,
            leader_epoch_floor=self.leader_epoch_floor,
            accounted_at_ms=self.accounted_at_ms,
            is_planned=self.is_planned,
            kept_below=KeptEnds(self.partitions),
        )

    @property
    def last_contact_ms(self) -> int:
        """Age of the oldest knowledge of the source, among partitions without an exact end; UNKNOWN
        if one of them was never known.
        """
        ages = [item.last_contact_ms for item in self.partitions if not item.is_source_end_exact]
        if not ages:
            return 0
        return UNKNOWN if UNKNOWN in ages else max(ages)

    def document(self) -> dict[str, Any]:
        """Plain data with the sums and the sentences for the operator."""
        document: dict[str, Any] = to_builtins(self)
        document["known_lost_records"] = self.known_lost_records
        document["returning_records"] = self.returning_records
        document["is_exact"] = self.is_exact
        document["is_final"] = self.is_final
        document["found_records"] = self.found_records if self.is_final else UNKNOWN
        document["found_bytes"] = self.found_bytes if self.is_final else UNKNOWN
        document["differences"] = self.differences
        document["transactions"] = self.transaction_sentences
        for values, loss in zip(document["partitions"], self.partitions, strict=True):
            values["sentence"] = loss.sentence
        if self.groups is not None:
            document["groups"]["sentence"] = self.groups.sentence
        if self.access is not None:
            document["access"]["sentence"] = self.access.sentence
        return document

    def to_json(self) -> str:
        """Return one JSON object; `from_json` reads it back."""
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def from_json(cls, text: str) -> LossAccount:
        """ValueError when `text` is not an account."""
        try:
            return _DECODER.decode(text)
        except RecursionError as error:
            raise ValueError("arrays and objects are nested too deeply") from error


# typed: of ten thousand partitions each agent reads an account several times in a move
_DECODER = msgspec.json.Decoder(LossAccount)
