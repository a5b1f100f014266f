"""Asks all live brokers of the agent's own site at once: for positions, for the records that they
enforce, and for confirmations.

The addresses come from the registrations in ZooKeeper at the time of the call. A broker that does
not answer is reported as such; nothing is assumed about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import grpc
from msgspec import Struct

from dr.agent.site_cache import SiteCache
from dr.sites.channels import UNANSWERED, Channels, problem_of
from dr.sites.core.evidence import NOT_ASKED
from dr.sites.core.mirror_reports import (
    access_synced_ms_ago,
    carried_access,
    fenced_access,
    report_round_ms,
    resting_ms_ago,
    sync_reports_of_mirror,
)
from runtime.clock import Clock
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.broker_pb2 import (
    ConfirmLinkReply,
    ConfirmLinkRequest,
    DescribeGroupMembersReply,
    DescribeGroupMembersRequest,
    DescribeGroupOffsetsReply,
    DescribeGroupOffsetsRequest,
    DescribePartitionsReply,
    DescribePartitionsRequest,
    DescribeQuarantineReply,
    DescribeQuarantineRequest,
    QuarantinedEnd,
    TakeGroupMembersReply,
    TakeGroupMembersRequest,
    TransactionalProducers,
)
from wire.control.broker_pb2_grpc import BrokerControlStub
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import DescribeGroupsReply

ASK_TIMEOUT_S = 2.0
AWAITED_MS_MAX = 1_000
"""How long (ms) a broker may keep a query until a record is in force: less than ASK_TIMEOUT_S. A
broker that has just registered is asked after this time at the latest.
"""
POLL_S = 0.02

Answer = TypeVar("Answer")


class BrokerAnswer(Struct, frozen=True, kw_only=True):
    """One broker's description, or the reason why it is missing."""

    node_id: int
    reply: DescribePartitionsReply | None
    problem: str = ""


class Enforcement(Struct, frozen=True, kw_only=True):
    """How a record of a link is in force: the problem of each broker that does not enforce it, and
    whether each partition that the link carries has a leader above the record's floor.
    """

    problems: list[str]
    has_leaders: bool


class Confirmation(Struct, frozen=True, kw_only=True):
    """How an epoch of a link is confirmed: the problem of each broker that has not accepted it, and
    whether every partition that the link carries takes writes.
    """

    problems: list[str]
    are_writable: bool


def are_unchanged(answers: Sequence[BrokerAnswer], known_versions: Mapping[int, int]) -> bool:
    """True if exactly the brokers of the known versions have answered, each with that version."""
    is_each = all(one.reply is not None and one.reply.is_unchanged for one in answers)
    return bool(answers) and is_each and {one.node_id for one in answers} == set(known_versions)


class OwnBrokers:
    """Asks every registered broker of the site."""

    def __init__(self, cache: SiteCache, channels: Channels, clock: Clock) -> None:
        self._cache = cache
        self._channels = channels
        self._clock = clock

    async def describe(self, link: str) -> list[BrokerAnswer]:
        """Each live broker's report about the mirrored partitions of the link."""
        return await self._describe(DescribePartitionsRequest(link=link))

    async def observe(
        self, link: str, known_versions: Mapping[int, int] | None, *, accepts_columns: bool
    ) -> list[BrokerAnswer]:
        """The same, in columns if accepted. With known versions also the versions of the logs, and
        no partitions if all brokers have the known ones.
        """
        if known_versions is None:
            return await self._describe(DescribePartitionsRequest(link=link, accepts_columns=accepts_columns))
        request = DescribePartitionsRequest(
            link=link, with_version=True, known_versions=known_versions, accepts_columns=accepts_columns
        )
        answers = await self._describe(request)
        if all(one.reply is None or not one.reply.is_unchanged for one in answers) or are_unchanged(
            answers, known_versions
        ):
            return answers
        # Some have changed, and the partitions of the others are missing in their answers.
        return await self._describe(
            DescribePartitionsRequest(link=link, with_version=True, accepts_columns=accepts_columns)
        )

    async def _describe(self, request: DescribePartitionsRequest) -> list[BrokerAnswer]:

        async def ask(stub: BrokerControlStub) -> DescribePartitionsReply:
            reply: DescribePartitionsReply = await stub.DescribePartitions(request, timeout=ASK_TIMEOUT_S)
            return reply

        return [
            BrokerAnswer(node_id=node_id, reply=reply, problem=problem)
            for node_id, reply, problem in await self._ask_each(ask)
        ]

    async def describe_groups(self, link: str, *, is_brief: bool = False) -> DescribeGroupsReply:
        """Committed offsets of the groups that the link carries; the answer names the missing
        parts. Brief: only the mirror's reports.
        """
        request = DescribeGroupOffsetsRequest(link=link, is_brief=is_brief)

        async def ask(stub: BrokerControlStub) -> DescribeGroupOffsetsReply:
            reply: DescribeGroupOffsetsReply = await stub.DescribeGroupOffsets(request, timeout=ASK_TIMEOUT_S)
            return reply

        answers = await self._ask_each(ask)
        replies = [reply for _, reply, _ in answers if reply is not None]
        now_ms = self._clock.now_ms()
        synced_at_ms, failing = sync_reports_of_mirror(replies, now_ms=now_ms)
        if is_brief:
            return DescribeGroupsReply(
                synced_at_ms=synced_at_ms,
                failing=failing,
                answered_at_ms=now_ms,
                resting_ms_ago=resting_ms_ago(replies),
                report_round_ms=report_round_ms(replies),
                carried_access=carried_access(replies),
                access_synced_ms_ago=access_synced_ms_ago(replies),
                has_mirror_reported=any(reply.words for reply in replies),
            )
        problems = [f"broker {node_id}: {problem}" for node_id, reply, problem in answers if reply is None]
        if not answers:
            problems.append("no broker is registered")
        groups = ((reply.partitions, reply.partition_count) for reply in replies)
        transactions = ((reply.transaction_partitions, reply.transaction_partition_count) for reply in replies)
        return DescribeGroupsReply(
            groups=[group for reply in replies for group in reply.groups],
            problems=[*problems, *_without_coordinator(OFFSETS_TOPIC, groups)],
            synced_at_ms=synced_at_ms,
            failing=failing,
            answered_at_ms=now_ms,
            resting_ms_ago=resting_ms_ago(replies),
            report_round_ms=report_round_ms(replies),
            fenced_access=fenced_access(replies),
            carried_access=carried_access(replies),
            access_synced_ms_ago=access_synced_ms_ago(replies),
            has_mirror_reported=any(reply.words for reply in replies),
            committing_transactions=sum(reply.committing_transactions for reply in replies),
            transaction_problems=_without_coordinator(TRANSACTIONS_TOPIC, transactions),
            transactional_producers=_producers(replies),
        )

    async def group_members(self, link: str) -> DescribeGroupMembersReply:
        """The members of the groups that the link carries; those of a broker that does not answer
        are missing.
        """
        request = DescribeGroupMembersRequest(link=link)

        async def ask(stub: BrokerControlStub) -> DescribeGroupMembersReply:
            reply: DescribeGroupMembersReply = await stub.DescribeGroupMembers(request, timeout=ASK_TIMEOUT_S)
            return reply

        answers = await self._ask_each(ask)
        groups = [group for _, reply, _ in answers if reply is not None for group in reply.groups]
        return DescribeGroupMembersReply(groups=groups)

    async def take_group_members(self, request: TakeGroupMembersRequest) -> TakeGroupMembersReply:
        """Give members of groups to the brokers that coordinate these groups here."""

        async def ask(stub: BrokerControlStub) -> TakeGroupMembersReply:
            reply: TakeGroupMembersReply = await stub.TakeGroupMembers(request, timeout=ASK_TIMEOUT_S)
            return reply

        found = TakeGroupMembersReply()
        for _, reply, _ in await self._ask_each(ask):
            if reply is not None:
                found.MergeFrom(reply)
        # a group that no broker names would otherwise look as if it had been accepted
        missing = {group.group for group in request.groups} - {*found.taken, *found.refused}
        for name in missing:
            found.refused[name] = "no broker has confirmed it"
        return found

    async def quarantined(self, link: str) -> list[QuarantinedEnd] | None:
        """The brokers' quarantine entries for copies of the link; None if a broker does not
        answer.
        """
        request = DescribeQuarantineRequest(link=link)

        async def ask(stub: BrokerControlStub) -> DescribeQuarantineReply:
            reply: DescribeQuarantineReply = await stub.DescribeQuarantine(request, timeout=ASK_TIMEOUT_S)
            return reply

        found: list[QuarantinedEnd] = []
        for _, reply, _ in await self._ask_each(ask):
            if reply is None:
                return None
            found += reply.ends
        return found

    async def wait_enforced(self, record: LinkRecord, *, timeout_ms: float) -> Enforcement:
        """Wait until every live broker enforces the record; after the timeout there are problems. A
        broker answers when it has the record in force. So a repeated question is needed only if a
        broker is of an earlier release, or if something besides the record is missing.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        while True:
            left_ms = max(0, round(deadline - self._clock.monotonic_ms()))
            request = DescribePartitionsRequest(
                link=record.name,
                is_brief=True,
                awaited=record,
                wait_ms=min(left_ms, AWAITED_MS_MAX),
            )
            answers = await self._describe(request)
            problems = [problem for answer in answers if (problem := not_enforcing(answer, record))]
            if not problems or self._clock.monotonic_ms() >= deadline:
                has_leaders = all(answer.reply is not None and answer.reply.has_leaders for answer in answers)
                return Enforcement(problems=problems, has_leaders=bool(answers) and has_leaders)
            await asyncio.sleep(POLL_S)

    async def wait_marked(self, record: LinkRecord, *, timeout_ms: float) -> list[str]:
        """Wait until the arbiter has the mark of each live broker that acknowledged records which
        the standby may lack; after the timeout there are problems.
        """
        request = ConfirmLinkRequest(link=record.name, epoch=record.epoch)
        deadline = self._clock.monotonic_ms() + timeout_ms

        async def ask(stub: BrokerControlStub) -> ConfirmLinkReply:
            reply: ConfirmLinkReply = await stub.ConfirmLink(request, timeout=ASK_TIMEOUT_S)
            return reply

        while True:
            problems = [
                f"broker {node_id}: {problem or 'is not marked out of sync at the arbiter yet'}"
                for node_id, reply, problem in await self._ask_each(ask)
                if reply is None or reply.wants_mark
            ]
            if not problems or self._clock.monotonic_ms() >= deadline:
                return problems
            await asyncio.sleep(POLL_S)

    async def confirm(self, link: str, *, epoch: int, timeout_ms: float) -> Confirmation:
        """Confirm the epoch to every live broker; after the timeout there are problems."""
        request = ConfirmLinkRequest(link=link, epoch=epoch, asks_writable=True)
        deadline = self._clock.monotonic_ms() + timeout_ms

        async def ask(stub: BrokerControlStub) -> ConfirmLinkReply:
            reply: ConfirmLinkReply = await stub.ConfirmLink(request, timeout=ASK_TIMEOUT_S)
            return reply

        while True:
            answers = await self._ask_each(ask)
            problems = [
                f"broker {node_id}: {problem or 'does not have the epoch yet'}"
                for node_id, reply, problem in answers
                if reply is None or not reply.is_confirmed
            ]
            if not problems or self._clock.monotonic_ms() >= deadline:
                are_writable = all(reply is not None and reply.are_writable for _, reply, _ in answers)
                return Confirmation(problems=problems, are_writable=bool(answers) and are_writable)
            await asyncio.sleep(POLL_S)

    async def _ask_each(
        self, ask: Callable[[BrokerControlStub], Awaitable[Answer]]
    ) -> list[tuple[int, Answer | None, str]]:
        async def one(node_id: int, address: str) -> tuple[int, Answer | None, str]:
            try:
                return node_id, await ask(self._channels.broker_control(address)), ""
            except grpc.aio.AioRpcError as error:
                # any other code is an answer: a refusal or a defect, which must not look like a
                # lost broker
                if error.code() not in UNANSWERED:
                    raise
                return node_id, None, problem_of(error)

        facts = self._cache.facts
        brokers = sorted(facts.brokers.items())
        answers = await asyncio.gather(*(one(node, registration.grpc_address) for node, (registration, _) in brokers))
        # The broker is alive, but its address is unknown.
        unasked = [(int(place.name), None, text) for place, text in facts.unreadable.items() if place.kind == "broker"]
        return [*answers, *unasked]


def is_unfenced(answer: BrokerAnswer, record: LinkRecord) -> bool:
    """True if the broker has the epoch of the fenced record in force, but not its fence. Its logs
    need not show that: it may only coordinate groups, which still commit offsets there.
    """
    reply = answer.reply
    if reply is None or record.phase != LinkPhase.FENCED or reply.link_epochs.get(record.name) != record.epoch:
        return False
    # a broker of an earlier release does not report the phase
    return reply.link_phases.get(record.name, LinkPhase.FENCED) != LinkPhase.FENCED


def not_enforcing(answer: BrokerAnswer, record: LinkRecord) -> str:
    """The reason why the broker does not enforce the record; empty when it does."""
    if answer.reply is None:
        return f"broker {answer.node_id}: {answer.problem}"
    epoch = answer.reply.link_epochs.get(record.name, NOT_ASKED)
    if epoch < record.epoch:
        return f"broker {answer.node_id}: enforces epoch {epoch}, not {record.epoch}"
    revision = answer.reply.link_revisions.get(record.name, 0)
    if epoch == record.epoch and revision < record.revision:
        return f"broker {answer.node_id}: has revision {revision} of the link in force, not {record.revision}"
    if is_unfenced(answer, record):
        return f"broker {answer.node_id}: has not applied the fence"
    if record.phase == LinkPhase.FENCED:
        open_ones = [f"{item.topic}-{item.partition}" for item in answer.reply.partitions if item.is_writable]
        if epoch == record.epoch and open_ones:
            return f"broker {answer.node_id}: still accepts writes to {', '.join(open_ones[:3])}"
    return ""


def _without_coordinator(topic: str, reported: Iterable[tuple[Iterable[int], int]]) -> list[str]:
    """Describe the partitions of an internal topic for which no broker answers. Each broker reports
    its own partitions, and the number of all.
    """
    # brokers may have images of different age, so the largest number of partitions is used
    partitions, counts = set[int](), [0]
    for of_broker, count in reported:
        partitions.update(of_broker)
        counts.append(count)
    missing = sorted(set(range(max(counts))) - partitions)
    named = ", ".join(map(str, missing[:3]))
    return [f"no coordinator for {len(missing)} partitions of {topic} ({named})"] if missing else []


def _producers(replies: Sequence[DescribeGroupOffsetsReply]) -> TransactionalProducers | None:
    """The transactional producers of all brokers; None if a broker does not report them."""
    if not all(reply.HasField("transactional_producers") for reply in replies):
        return None
    return TransactionalProducers(
        producers=[known for reply in replies for known in reply.transactional_producers.producers]
    )
