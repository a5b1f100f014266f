"""Finds the offset up to which copies of one topic have the source's history. Leader epochs decide
(KIP-101), and then the last batch below that offset, because two sites that were active in the same
epoch have the same leader epochs.

`wire/batches/log_histories.py` judges the answers. Called by `resets.py` and
`reinstatements.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Final

from msgspec import Struct

from mirror.admin.verifier import Verifier
from mirror.link.ports import LogEnds, Refused, SitePort, SiteTopic, Unreachable
from wire.batches.log_histories import EpochEnd, shared_end
from wire.protocol.ids import NO_EPOCH, TopicPartition

NOTHING: Final = 0
"""Logs that share no leader epoch share no record from the first offset on."""


class SharedHistory(Struct, frozen=True):
    """The offset below which both sites have the same records, which may be below the copy's log
    start; `doubt` is the reason why it is unreliable, empty if it is reliable.
    """

    end_offset: int
    doubt: str = ""


class Histories:
    """The two sites of one link."""

    def __init__(self, source: SitePort, target: SitePort, verifier: Verifier | None) -> None:
        """Compare by leader epochs alone if `verifier` is None."""
        self._source = source
        self._target = target
        self._verifier = verifier

    async def compare(
        self, ends: Mapping[TopicPartition, LogEnds], wanted: SiteTopic, copy: SiteTopic
    ) -> dict[TopicPartition, SharedHistory]:
        """The end of the common history of each copy whose log is in `ends` and has leader epochs.
        Raises Unreachable, also when the batches below such an end cannot be read.
        """
        found: dict[TopicPartition, int] = {}
        asked = {
            key: EpochEnd(one.last_epoch, one.end_offset)
            for key, one in ends.items()
            if key.partition in wanted.leaders and one.last_epoch != NO_EPOCH
        }
        for site, topic in cycle(((self._source, wanted), (self._target, copy))):
            if not asked:
                break
            asked = _judge(asked, await _epoch_ends(site, asked, topic), found)
        return {
            key: SharedHistory(end_offset, await self._doubt(key, end_offset, ends[key]))
            for key, end_offset in found.items()
        }

    async def _doubt(self, key: TopicPartition, end_offset: int, log: LogEnds) -> str:
        if self._verifier is None or end_offset <= log.log_start_offset:
            return ""
        compared = await self._verifier.compare(key, mirrored_end=end_offset, last_offsets=1)
        if compared.verdict == "equal":
            return ""
        if compared.is_unread:
            raise Unreachable(f"the batches below offset {end_offset} cannot be compared: {compared.finding}")
        return f"the batches below offset {end_offset} may differ between the sites: {compared.finding}"


async def _epoch_ends(
    site: SitePort, asked: Mapping[TopicPartition, EpochEnd], topic: SiteTopic
) -> dict[TopicPartition, EpochEnd]:
    """The epochs that a site's leaders report. Raises Unreachable when one of them does not
    answer.
    """
    questions = {key: (topic.leaders[key.partition], one.epoch) for key, one in asked.items()}
    answers = await site.epoch_ends(questions)
    found: dict[TopicPartition, EpochEnd] = {}
    for key in asked:
        answer = answers.get(key)
        if not isinstance(answer, EpochEnd):
            raise Unreachable(f"{key}: {answer.error.name if isinstance(answer, Refused) else answer or 'no answer'}")
        found[key] = answer
    return found


def _judge(
    asked: Mapping[TopicPartition, EpochEnd],
    answers: Mapping[TopicPartition, EpochEnd],
    found: dict[TopicPartition, int],
) -> dict[TopicPartition, EpochEnd]:
    """Record in `found` where histories are known to differ; return the next queries to the other
    site about the remaining partitions.
    """
    open_questions: dict[TopicPartition, EpochEnd] = {}
    for key, answer in answers.items():
        shared = shared_end(asked[key], answer)
        if shared is not None:
            found[key] = shared
        elif answer.epoch == NO_EPOCH:
            found[key] = NOTHING
        else:
            open_questions[key] = answer
    return open_questions
