"""Requests the digests of one site's logs, each range from its leader, and from each broker what it
has found damaged on its disks. A request for digests is repeated while leaders move, or while a
leader still reads its log.

Caller: dr/proof/comparison.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.client.client_errors import TRANSIENT, KafkaClientError, UnsupportedApi, broker_error
from wire.client.cluster_metadata import TopicMetadata
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.requests.damaged_batch_requests import DamagedReplica, request_damaged_batches
from wire.client.requests.range_digest_requests import RangeContent, RangeQuery, request_range_digests, requests_of
from wire.client.security import ClientSecurity, secured
from wire.protocol.messages.range_digest_messages import RANGE_DIGESTS

RETRY_BUDGET_MS: Final = 20_000
"""Time (ms) in which a site must answer for a range after its last answer or its last progress."""
PAUSE_S: Final = 0.1

Progress = Callable[[str], None]


class SiteDigests:
    """The digests of one site. The caller owns the client."""

    def __init__(self, site: str, client: KafkaClient, clock: Clock, progress: Progress) -> None:
        self.site = site
        self._client = client
        self._clock = clock
        self._progress = progress

    async def topics(self) -> dict[str, TopicMetadata]:
        """Return all topics of the site. OperationalFailure."""
        try:
            return dict((await self._client.metadata()).topics)
        except KafkaClientError as error:
            raise self._failure(error) from error

    async def ask(self, queries: Iterable[RangeQuery]) -> dict[RangeQuery, RangeContent]:
        """An answer for each query, which may be a permanent error. Raises OperationalFailure when
        the site does not answer for all in time.
        """
        found: dict[RangeQuery, RangeContent] = {}
        left = list(dict.fromkeys(queries))
        deadline_ms = self._clock.monotonic_ms() + RETRY_BUDGET_MS
        pending_before = -1
        while left:
            problem, pending = "", 0
            for query, answer in (await self._round(left)).items():
                if isinstance(answer, KafkaClientError):
                    problem = str(answer)
                elif answer.pending_leaves:
                    pending += answer.pending_leaves
                else:
                    found[query] = answer
            answered, left = left, [query for query in left if query not in found]
            if not left:
                break
            # Every sign of progress restarts the deadline: a leader that reads a large log from
            # disk may need long.
            if len(left) < len(answered) or pending < pending_before or (pending and pending_before < 0):
                deadline_ms = self._clock.monotonic_ms() + RETRY_BUDGET_MS
            if pending:
                self._progress(f"site {self.site} reads its logs: {pending} ranges are left")
            pending_before = pending
            if self._clock.monotonic_ms() >= deadline_ms:
                raise OperationalFailure(
                    f"site {self.site} has not answered for {len(left)} ranges within {RETRY_BUDGET_MS} ms: "
                    f"{problem or 'it still reads its logs'}"
                )
            await asyncio.sleep(PAUSE_S)
        return found

    async def damaged_replicas(self) -> tuple[list[DamagedReplica], list[str]]:
        """The damaged batches that all brokers name, and a sentence for each broker that leaves
        some out or does not answer: one that is down has no replica that could lead.
        """
        found: list[DamagedReplica] = []
        notes: list[str] = []

        async def ask(node_id: int) -> None:
            where = f"broker {node_id} of site {self.site}"
            try:
                named, unnamed = await request_damaged_batches(await self._client.connection(node_id), node_id)
            except KafkaClientError as error:
                notes.append(f"{where} does not say whether batches on its disks are damaged: {error}")
                return
            found.extend(named)
            if unnamed:
                notes.append(f"{where} has {unnamed} more damaged batches")

        await asyncio.gather(*(ask(node_id) for node_id in self._client.cluster.brokers))
        return sorted(found), sorted(notes)

    async def _round(self, queries: list[RangeQuery]) -> dict[RangeQuery, RangeContent | KafkaClientError]:
        """Ask all leaders at the same time, once for each query."""
        answers: dict[RangeQuery, RangeContent | KafkaClientError] = {}
        by_leader: dict[int, list[RangeQuery]] = {}
        for query in queries:
            try:
                by_leader.setdefault(await self._client.leader(query.topic, query.partition), []).append(query)
            except TRANSIENT as error:
                answers[query] = error
            except KafkaClientError as error:
                raise self._failure(error) from error
        for found in await asyncio.gather(*(self._ask_leader(node, asked) for node, asked in by_leader.items())):
            answers |= found
        return answers

    async def _ask_leader(
        self, node: int, queries: list[RangeQuery]
    ) -> dict[RangeQuery, RangeContent | KafkaClientError]:
        answers: dict[RangeQuery, RangeContent | KafkaClientError] = {}
        for asked in requests_of(queries):
            try:
                answers |= await request_range_digests(await self._client.connection(node), asked)
            except UnsupportedApi as error:
                raise OperationalFailure(
                    f"site {self.site}: {error}: its brokers have no digests; compare without --quick"
                ) from error
            except TRANSIENT as error:
                answers |= dict.fromkeys(asked, error)
            except KafkaClientError as error:
                raise self._failure(error) from error
        for query, answer in answers.items():
            if isinstance(answer, KafkaClientError):
                self._client.forget_leaders([query.topic])
            elif answer.error_code is not ErrorCode.none and answer.error_code.retriable:
                self._client.forget_leaders([query.topic])
                code, reason = answer.error_code, answer.error_message
                answers[query] = broker_error(code, message=reason or None, node=f"node {node}", api_key=RANGE_DIGESTS)
        return answers

    def _failure(self, error: KafkaClientError) -> OperationalFailure:
        return OperationalFailure(f"site {self.site} does not answer: {error}")


def new_client(bootstrap: str, security: ClientSecurity | None = None) -> KafkaClient:
    """A client of one site's own brokers; without `security` it uses the security settings of the
    process.
    """
    options = ConnectionOptions(client_id="antipode-reconcile")
    if security is not None:
        options = secured(options, security)
    return KafkaClient(bootstrap, options, site_local=True, retry_budget_ms=RETRY_BUDGET_MS)
