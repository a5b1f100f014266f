"""Compares the ranges of an archive with the logs of a site, by the digests of its brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import ArchivedRange
from spark_jobs.logs.log_reader import client
from spark_jobs.logs.range_contents import range_contents
from wire.client.client_errors import KafkaClientError
from wire.client.requests.range_digest_requests import RangeContent, RangeQuery
from wire.protocol.messages.range_digest_messages import WHOLE_RANGE


class Compared(NamedTuple):
    """Sentences about ranges that differ and about ranges that could not be compared; the number of
    equal ones.
    """

    differing: tuple[str, ...]
    not_compared: tuple[str, ...]
    equal: int


def compared_with_site(bootstrap: str, digests: Sequence[tuple[ArchivedRange, bytes]]) -> Compared:
    """Compare ranges, each with its digest, with the site's logs. OperationalFailure when the site
    does not answer, or keeps no digests.
    """
    try:
        ids, answers = asyncio.run(_asked(bootstrap, [one for one, _ in digests]))
    except (KafkaClientError, TimeoutError) as error:
        raise OperationalFailure(f"the digests of the site at {bootstrap} cannot be read: {error}") from error
    differing, not_compared, equal = [], [], 0
    for one, digest in digests:
        answer = answers.get(_query(one)) if ids.get(one.topic) == one.topic_id else None
        place = f"{one.topic}-{one.partition} offsets {one.first_offset} to {one.end_offset - 1}"
        if reason := _reason(answer):
            not_compared.append(f"{place}: {reason}")
        elif answer is not None and answer.content != digest:
            differing.append(f"{place} differ from the log of the site")
        else:
            equal += 1
    return Compared(tuple(differing), tuple(not_compared), equal)


def _query(one: ArchivedRange) -> RangeQuery:
    return RangeQuery(one.topic, one.partition, one.first_offset, one.end_offset, WHOLE_RANGE)


def _reason(answer: RangeContent | None) -> str:
    """The reason why a range cannot be compared; empty when it can."""
    if answer is None:
        return "the site has no topic with this id"
    if answer.error_code is ErrorCode.offset_out_of_range:
        return "the site has deleted them, or does not have them yet"
    return (answer.error_message or answer.error_code.name) if answer.error_code else ""


async def _asked(
    bootstrap: str, ranges: Sequence[ArchivedRange]
) -> tuple[dict[str, str], dict[RangeQuery, RangeContent]]:
    """The ids of the site's topics by name, and the answers about the ranges of those topics."""
    async with client(bootstrap) as site:
        topics = (await site.metadata()).topics
        ids = {name: str(topic.topic_id) for name, topic in topics.items()}
        there = [_query(one) for one in ranges if ids.get(one.topic) == one.topic_id]
        return ids, await range_contents(site, there)
