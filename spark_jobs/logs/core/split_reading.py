"""Which fetches read one split of a log, and which batches of their answers belong to it. Pure.

A broker answers a fetch from the first batch on that reaches the wanted offset. A second copy of a
batch that ended the last answer lies before that, so no fetch of the following offset shows it. An
index of the broker may name either copy. Where an answer may have been cut between two copies, the
next fetch therefore begins at the batch before them and passes over what is known. A second copy
that begins a segment stays unseen: a broker looks for offsets in that segment alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spark_jobs.logs.core.splits import Split
from wire.batches.record_batch import BatchHeader, iterate_headers


class Fetch(NamedTuple):
    """The next request for the split's log."""

    offset: int
    max_bytes: int


class SplitReading:
    """The position in one split. `offset` is the offset after everything that was read.

    A batch at offsets that the log has had before is left out, or with `keeps_repeated` given out.
    """

    def __init__(self, split: Split, *, fetch_bytes: int, keeps_repeated: bool) -> None:
        self.offset = split.first_offset
        self._split = split
        self._fetch_bytes = fetch_bytes
        self._keeps_repeated = keeps_repeated
        self._known: list[BatchHeader] = []
        """The last batches of the log: those that end at `offset`, after those that end before
        them.
        """
        self._before = 0
        """The number of `_known` that end before `offset`."""
        self._largest_bytes = 0
        self._is_cut = False
        """True if the last answer had no room for another copy of one of its batches."""
        self._is_over = False

    def next_fetch(self) -> Fetch | None:
        """The next request; None at the end."""
        if self._is_over or (self.offset >= self._split.until_offset and not self._is_cut):
            return None
        if not self._is_cut:
            return Fetch(self.offset, self._fetch_bytes)
        known_bytes = sum(one.size_bytes for one in self._known)
        return Fetch(self._known[0].base_offset, known_bytes + max(self._fetch_bytes, self._largest_bytes))

    def skip_to(self, log_start_offset: int) -> None:
        """Continue at the log's start: retention has deleted the records before it."""
        self.offset = max(self.offset, log_start_offset)
        self._known, self._before, self._is_cut = [], 0, False

    def batches(self, fetch: Fetch, data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the answer's batches that are new and belong to the split.
        Raises InvalidBatch at bytes that are no batch.
        """
        known, before = (self._known if self._is_cut else []), self.offset
        has_begun = has_new = False
        used_bytes = 0
        for position, header in iterate_headers(data, may_end_in_partial=True):
            used_bytes = position + header.size_bytes
            if header in known:
                known, has_begun = known[known.index(header) + 1 :], True
                continue
            # An answer may begin below the offset; a batch below it later on is a repetition.
            is_below = header.base_offset < self._split.first_offset and not self._split.is_first
            # The split before this one gives out the batches that lie between known ones.
            is_others = is_below and (not has_begun or bool(known))
            is_repeated = header.next_offset <= self.offset or is_below
            if is_others or (is_repeated and not (self._keeps_repeated and has_begun)):
                self._pass(header)
                continue
            if header.base_offset >= self._split.until_offset:
                self._is_over = True
                return
            yield position, header
            self._pass(header)
            has_begun = has_new = True
        self._is_over = self.offset == before and not self._is_cut
        self._is_cut = self._keeps_repeated and has_new and fetch.max_bytes - used_bytes < self._largest_bytes

    def _pass(self, header: BatchHeader) -> None:
        if header.next_offset > self.offset:
            self._known = [*self._known[self._before :], header]
            self._before = len(self._known) - 1
            self.offset = header.next_offset
        else:
            self._known = [*self._known, header]
        self._largest_bytes = max(self._largest_bytes, header.size_bytes)
