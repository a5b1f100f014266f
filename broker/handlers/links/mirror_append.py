"""MirrorAppend (private): a mirror's raw batches, appended unchanged at the passive site.

Behaviour: link epoch and role checked first; batches that are there already are acknowledged, gaps
and other histories refused with where the log ends (see `wire/protocol/messages/private.py`).
Topics whose flush.messages demands it are flushed before the answer. Acknowledged records are below
this site's high watermark: every in-sync replica has them, and these are at least
min.insync.replicas. So the source may expire them, and on a sync link may acknowledge them to its
producers. Versions: 0. Not done: throttling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import PartitionFailure
from broker.replication.mirror_append import (
    Outcome,
    Outcomes,
    answers,
    append_all,
    errors_of,
    restart_in_threads,
    restarting,
    to_be_flushed,
    unreplicated,
)
from broker.replication.replicas import Replicas
from runtime.clock import Clock
from wire.protocol.messages.mirror_append_codec import (
    MirrorAppend,
    encode_mirror_append_response,
    parse_mirror_append,
)
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.protocol.messages.private import PRIVATE_VERSIONS

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = MIRROR_APPEND
REPLICATION_TIMEOUT_MS: Final = 5_000.0
"""Time (ms) that a MirrorAppend may wait for replication; it is shorter than the time that a mirror
waits for an answer.
"""
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[MIRROR_APPEND]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    cluster: Cluster
    replicas: Replicas


def handle_frame(frame: Frame, exchange: Exchange, doors: Doors) -> None:
    """Answer a MirrorAppend request."""
    position = exchange.header.body_position
    request = parse_mirror_append(frame, position)
    if restarting(doors.cluster.image, doors.replicas, request):
        # the frame is invalid after the disk write, so it is parsed again from a copy: views of the
        # frame end with this call
        kept = parse_mirror_append(memoryview(bytes(frame)), position)
        exchange.defer(_restart_and_append(doors, exchange, kept))
    else:
        _append_all(doors, exchange, request)


async def _restart_and_append(doors: Doors, exchange: Exchange, request: MirrorAppend) -> None:
    # looked up again: roles and ends may have changed before this task ran
    for hosted, sent in restarting(doors.cluster.image, doors.replicas, request):
        try:
            await restart_in_threads(doors.replicas, hosted, sent)
        except StorageError as error:
            doors.replicas.storage_failed(error)
    _append_all(doors, exchange, request)


def _append_all(doors: Doors, exchange: Exchange, request: MirrorAppend) -> None:
    outcomes = append_all(doors.cluster.image, doors.replicas, request, now_ms=doors.clock.now_ms())
    if to_flush := to_be_flushed(outcomes):
        exchange.defer(_answer_flushed(doors, exchange, outcomes, to_flush))
    else:
        _answer_replicated(doors, exchange, outcomes)


async def _answer_flushed(doors: Doors, exchange: Exchange, outcomes: Outcomes, to_flush: list[Outcome]) -> None:
    logs = [outcome.hosted.log for outcome in to_flush if outcome.hosted is not None]
    results = await asyncio.gather(*(log.flush() for log in logs), return_exceptions=True)
    for outcome, result in zip(to_flush, results, strict=True):
        if isinstance(result, StorageError):
            outcome.fail(PartitionFailure(ErrorCode.kafka_storage_error, str(result)))
            doors.replicas.storage_failed(result)
        elif isinstance(result, BaseException):
            raise result
    _answer_replicated(doors, exchange, outcomes)


def _answer_replicated(doors: Doors, exchange: Exchange, outcomes: Outcomes) -> None:
    missing = unreplicated(outcomes)
    if not missing:
        _answer(exchange, outcomes)
        return
    waiting = _WaitingAppend(exchange, outcomes, missing)
    purgatory = doors.replicas.purgatory
    keys = {outcome.hosted.key for outcome in missing if outcome.hosted is not None}
    entry = purgatory.wait(waiting, DelayedOperation.PRODUCE, keys=keys, timeout_ms=REPLICATION_TIMEOUT_MS)
    exchange.on_cancelled(lambda: purgatory.forget(entry))


class _WaitingAppend:
    """Mirrored batches that are not on every in-sync replica yet; waits (as a `Waiter`) until they
    are.
    """

    def __init__(self, exchange: Exchange, outcomes: Outcomes, missing: list[Outcome]) -> None:
        self._exchange = exchange
        self._outcomes = outcomes
        self._missing = missing

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        """True if no partition is pending."""
        self._missing = [outcome for outcome in self._missing if outcome.is_missing()]
        return not self._missing

    def complete(self) -> None:
        """Answer; a mirror sends batches again that took too long, and the broker finds that it has
        them.
        """
        self._exchange.resume(self._answer)

    def _answer(self) -> None:
        for outcome in self._missing:
            # one timeout has two causes, and only one of them needs an operator
            few = outcome.hosted is not None and not outcome.hosted.state.has_enough_in_sync
            why = "fewer replicas are in sync than min.insync.replicas" if few else "an in-sync replica is slow"
            outcome.fail(PartitionFailure(ErrorCode.request_timed_out, why))
        _answer(self._exchange, self._outcomes)


def _answer(exchange: Exchange, outcomes: Outcomes) -> None:
    exchange.count_errors(errors_of(outcomes))
    body = encode_mirror_append_response(answers(outcomes), throttle_time_ms=exchange.throttle_time_ms())
    exchange.reply_body([body], body_size=len(body))
