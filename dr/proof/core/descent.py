"""Compares two logs by digests: from one digest of the whole range down to the differing batches.
Pure: `questions` returns the next queries to both sites, `take` gets their answers.

The descent is bounded: on each level the first `NODES_MAX` differing nodes are examined, and the
batches of the first `LEAVES_MAX` differing leaves are named. The other nodes and leaves are named
as ranges of offsets. So a pair of logs without anything in common costs the same as a pair with a
few differences.

Caller: dr/proof/comparison.py.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from wire.batches.record_batch import HEADER_SIZE, BatchHeader, read_header
from wire.protocol.messages.range_digest_messages import DIGEST_BYTES, HEADERS, WHOLE_RANGE

FANOUT: Final = 16
"""Nodes of the next level in a node."""
NODES_ASKED_MAX: Final = 64
"""Nodes that a whole log is divided into first."""
NODES_MAX: Final = 8
LEAVES_MAX: Final = 4
DIFFERENCES_MAX: Final = 100
"""Maximum number of differences named in one log; further ones are counted."""


class DifferenceKind(enum.StrEnum):
    """The way in which the target differs from the source."""

    MISSING = "missing"
    EXTRA = "extra"
    DIVERGED = "diverged"


class Question(NamedTuple):
    """A range of offsets, its end not included, and how many leaves a node has (or WHOLE_RANGE, or
    HEADERS).
    """

    first_offset: int
    end_offset: int
    span: int


class Difference(Struct, frozen=True, kw_only=True):
    """Offsets that differ, both ends included; `detail` describes the difference."""

    kind: DifferenceKind
    first_offset: int
    last_offset: int
    detail: str


class Descent(Struct, kw_only=True):
    """The comparison of one partition's logs between two offsets, the end not included."""

    first_offset: int
    end_offset: int
    leaf_offsets: int
    differences: list[Difference] = field(default_factory=list)
    unnamed: int = 0
    """Differences beyond DIFFERENCES_MAX."""
    _open: list[Question] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.first_offset < self.end_offset:
            self._open.append(Question(self.first_offset, self.end_offset, WHOLE_RANGE))

    def questions(self) -> tuple[Question, ...]:
        """The next questions to both sites; empty when the comparison has ended."""
        return tuple(self._open)

    def take(self, answers: Mapping[Question, tuple[bytes, bytes]]) -> None:
        """Process both sites' answers to each question."""
        asked, self._open = self._open, []
        for question in asked:
            source, target = answers[question]
            if question.span == HEADERS:
                self._take_headers(question, source, target)
            elif source != target:
                self._take_digests(question, source, target)
        self._bound()

    def _take_digests(self, question: Question, source: bytes, target: bytes) -> None:
        if question.span == WHOLE_RANGE:
            self._open.append(question._replace(span=self._first_span()))
            return
        for node in self._differing_nodes(question, source, target):
            if question.span == 1:
                self._open.append(Question(*node, HEADERS))
            else:
                self._open.append(Question(*node, question.span // FANOUT))

    def _first_span(self) -> int:
        leaves = -(-self.end_offset // self.leaf_offsets) - self.first_offset // self.leaf_offsets
        # Powers of FANOUT, so that each level divides into whole nodes down to single leaves.
        span = 1
        while leaves > span * NODES_ASKED_MAX:
            span *= FANOUT
        return span

    def _differing_nodes(self, question: Question, source: bytes, target: bytes) -> Iterator[tuple[int, int]]:
        """First and end offsets of the nodes whose digests differ, within the question's range."""
        node_offsets = question.span * self.leaf_offsets
        first_node = question.first_offset // node_offsets
        # A site that sends fewer digests differs in the nodes for which it sent none.
        for number in range(max(len(source), len(target)) // DIGEST_BYTES):
            at = slice(number * DIGEST_BYTES, (number + 1) * DIGEST_BYTES)
            if source[at] != target[at]:
                begin = (first_node + number) * node_offsets
                yield max(begin, question.first_offset), min(begin + node_offsets, question.end_offset)

    def _bound(self) -> None:
        """Keep the first of the open queries, and report the others as ranges that differ."""
        # All open questions are of one level, so the first one shows which bound applies.
        kept = LEAVES_MAX if self._open and self._open[0].span == HEADERS else NODES_MAX
        for question in self._open[kept:]:
            self._name(
                DifferenceKind.DIVERGED, question.first_offset, question.end_offset - 1, "somewhere in these offsets"
            )
        del self._open[kept:]

    def _take_headers(self, question: Question, source: bytes, target: bytes) -> None:
        mine, others = _by_offset(source), _by_offset(target)
        if mine == others:
            self._name(
                DifferenceKind.DIVERGED,
                question.first_offset,
                question.end_offset - 1,
                "the digests differ and the headers do not: a log has changed during the comparison, compare again",
            )
        our_begins, their_begins = list(mine), list(others)
        batches = (one for site in (mine, others) for found in site.values() for one in found)
        # Compared from edge to edge: one batch of a site may cover several of the other site.
        edges = {min(edge, self.end_offset) for one in batches for edge in (one.base_offset, one.next_offset)}
        for first, end in pairwise(sorted(edges)):
            ours, theirs = _at(mine, our_begins, first), _at(others, their_begins, first)
            if ours == theirs:
                continue
            if not theirs:
                self._name(DifferenceKind.MISSING, first, end - 1, "")
            elif not ours:
                self._name(DifferenceKind.EXTRA, first, end - 1, "")
            else:
                self._name(DifferenceKind.DIVERGED, first, end - 1, _how_they_differ(ours, theirs))

    def _name(self, kind: DifferenceKind, first_offset: int, last_offset: int, detail: str) -> None:
        last = self.differences[-1] if self.differences else None
        if last is not None and (last.kind, last.detail, last.last_offset + 1) == (kind, detail, first_offset):
            self.differences[-1] = replace(last, last_offset=last_offset)
        elif len(self.differences) < DIFFERENCES_MAX:
            found = Difference(kind=kind, first_offset=first_offset, last_offset=last_offset, detail=detail)
            self.differences.append(found)
        else:
            self.unnamed += 1


def _by_offset(stored: bytes) -> dict[int, tuple[BatchHeader, ...]]:
    """The batches at each base offset, which a healthy log has once."""
    found: dict[int, tuple[BatchHeader, ...]] = {}
    for position in range(0, len(stored), HEADER_SIZE):
        header = read_header(stored, position)
        found[header.base_offset] = (*found.get(header.base_offset, ()), header)
    return dict(sorted(found.items()))


def _at(batches: Mapping[int, tuple[BatchHeader, ...]], begins: Sequence[int], offset: int) -> tuple[BatchHeader, ...]:
    """The batches that hold the offset; `begins` are the base offsets in order."""
    index = bisect_right(begins, offset) - 1
    found = batches[begins[index]] if index >= 0 else ()
    return found if found and offset < max(one.next_offset for one in found) else ()


def _how_they_differ(source: Sequence[BatchHeader], target: Sequence[BatchHeader]) -> str:
    if source[0].base_offset != target[0].base_offset:
        return "in other batches"
    if len(source) != len(target):
        return f"the source holds {len(source)} batches at this offset, the target {len(target)}"
    pairs = [*zip(source, target, strict=True)]
    names = [name for name in BatchHeader._fields if any(getattr(a, name) != getattr(b, name) for a, b in pairs)]
    return "differ in " + ", ".join(names)
