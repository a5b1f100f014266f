"""Carries transactional ids: reads the source's `__transaction_state`, and sends the producers' ids
and epochs to the target's coordinators.

Only producer ids and epochs are sent, because open transactions are in the mirrored batches. An id
that a coordinator refuses is sent again in the next round. Ids that the source has only from its
own mirroring (when it was the target) are not reported. Where the link does not route clients each
site coordinates for itself, and nothing is carried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice

from kio.schema.errors import ErrorCode

from mirror.groups.rounds import RoundProblem, repeat
from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkView
from mirror.link.ports import ProducersOfSource, ProducersOfTarget, TransactionalProducer
from runtime.logs import get_logger

REPORTED_AT_ONCE = 500
"""Number of ids in one request; the others follow in the next requests of the same round."""

_log = get_logger("mirror.transactional_ids")


class TransactionalIdSync:
    """The task that carries transactional ids."""

    def __init__(
        self,
        source: ProducersOfSource,
        target: ProducersOfTarget,
        *,
        link: Callable[[], LinkView],
        interval_ms: int,
    ) -> None:
        self._source = source
        self._target = target
        self._link = link
        self._interval_s = interval_ms / 1000
        self._carried: dict[str, TransactionalProducer] = {}
        self._waiting: dict[str, TransactionalProducer] = {}
        self._link_epoch = 0
        self._problem = RoundProblem(_log, "cannot mirror transactional ids")

    async def run(self) -> None:
        """Carry each interval until cancelled."""
        await repeat(self.round, self._problem, pause=partial(asyncio.sleep, self._interval_s))

    async def round(self) -> str:
        """Carry once; returns which ids the target refuses. Raises Unreachable when a site does not
        answer; ids that were carried before it failed stay carried.
        """
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE) or not link.record.is_routed:
            self._forget()
            return ""
        if link.epoch != self._link_epoch:  # The target may have been active in between, so everything is sent again.
            self._forget()
            self._link_epoch = link.epoch
        is_all = False
        while not is_all:  # The read does not wait for an empty answer, because a busy source always has new records.
            producers, is_all = await self._source.news()
            self._take(producers)
        sent: set[str] = set()
        refused: set[str] = set()
        while batch := dict(
            islice(((name, it) for name, it in self._waiting.items() if name not in sent), REPORTED_AT_ONCE)
        ):
            sent |= batch.keys()
            outcomes = await self._target.carry(batch, link=link.name, link_epoch=link.epoch)
            refused |= self._note(batch, outcomes)
        if not refused:
            return ""
        return f"the target refuses {len(refused)} transactional ids: {', '.join(sorted(refused)[:3])}"

    def _take(self, news: Mapping[str, TransactionalProducer | None]) -> None:
        for name, producer in news.items():
            self._waiting.pop(name, None)
            if producer is None:
                self._carried.pop(name, None)
            elif self._carried.get(name) != producer:
                self._waiting[name] = producer

    def _note(self, batch: Mapping[str, TransactionalProducer], outcomes: Mapping[str, ErrorCode]) -> set[str]:
        refused = set()
        for name, producer in batch.items():
            outcome = outcomes.get(name, ErrorCode.unknown_server_error)
            if outcome is ErrorCode.none:
                self._carried[name] = producer
                del self._waiting[name]
            else:
                refused.add(f"{name} ({outcome.name})")
        return refused

    def _forget(self) -> None:
        """Forget all producers, because another site coordinates them now. When the link's
        direction changes back, everything is read again.
        """
        self._carried.clear()
        self._waiting.clear()
        self._source.begin_anew()
