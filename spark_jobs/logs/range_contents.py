"""Asks the brokers of a site for the digests that they keep of ranges of their logs, each range at
its leader. Only Antipode's brokers have digests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from runtime.retries import jittered_backoff
from spark_jobs.logs.cluster_client import RETRY_BUDGET_MS
from wire.client.client_errors import TRANSIENT, broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.range_digest_requests import RangeContent, RangeQuery, request_range_digests, requests_of
from wire.protocol.messages.range_digest_messages import RANGE_DIGESTS

_PAUSE_S: Final = 0.1


async def range_contents(client: KafkaClient, queries: Sequence[RangeQuery]) -> dict[RangeQuery, RangeContent]:
    """An answer for each query, which may be a permanent error of its log. Raises KafkaClientError
    when a leader does not answer (UnsupportedApi where brokers have no digests), TimeoutError when
    a broker that reads its log makes no progress.
    """
    found: dict[RangeQuery, RangeContent] = {}
    left, pending_before = list(dict.fromkeys(queries)), -1
    async with asyncio.timeout(RETRY_BUDGET_MS / 1000) as limit:
        while left:
            answers = await _answers(client, left)
            pending = sum(answer.pending_leaves for answer in answers.values())
            found |= {query: answer for query, answer in answers.items() if not answer.pending_leaves}
            left = [query for query in left if query not in found]
            if pending != pending_before:
                pending_before = pending
                limit.reschedule(asyncio.get_running_loop().time() + RETRY_BUDGET_MS / 1000)
            if left:
                await asyncio.sleep(_PAUSE_S)
    return found


async def _answers(client: KafkaClient, queries: Sequence[RangeQuery]) -> dict[RangeQuery, RangeContent]:
    async for attempt in jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS):
        with attempt:
            by_leader: dict[int, list[RangeQuery]] = {}
            for query in queries:
                by_leader.setdefault(await client.leader(query.topic, query.partition), []).append(query)
            asked = [_ask_leader(client, node, mine) for node, mine in by_leader.items()]
            answers = [answer for found in await asyncio.gather(*asked) for answer in found.items()]
    return dict(answers)


async def _ask_leader(client: KafkaClient, node: int, queries: Sequence[RangeQuery]) -> dict[RangeQuery, RangeContent]:
    answers: dict[RangeQuery, RangeContent] = {}
    try:
        for asked in requests_of(queries):
            answers |= await request_range_digests(await client.connection(node), asked)
        for query, answer in answers.items():
            if answer.error_code.retriable:
                message = f"{query.topic}-{query.partition}: {answer.error_message}"
                raise broker_error(answer.error_code, message=message, node=f"node {node}", api_key=RANGE_DIGESTS)
    except TRANSIENT:
        client.forget_leaders({query.topic for query in queries})
        raise
    return answers
