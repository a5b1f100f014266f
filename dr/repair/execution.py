"""A repair: finds the differences between the sites of an exact link, plans orders, executes them,
and proves the result by digests.

A repair has no journal: each run reads the logs as they are. A run that was interrupted after any
step leaves records in the log, in quarantine, or in both, and the next run plans the remaining
orders. The brokers check each order again (`broker/replication/core/batch_replacement.py`,
`broker/handlers/links/quarantine_records.py`). `core/orders.py` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dr.proof.comparison import ComparisonRequest, compare_sites
from dr.proof.core.equality import DamagedFollower, EqualityReport, Verdict
from dr.proof.site_digests import SiteDigests, new_client
from dr.repair.core.followers import judge_follower
from dr.repair.core.orders import LEADER, Judged, Order, Refused, RepairSides, ReplaceBatch, TruncateCopy
from dr.repair.core.suspects import Suspect, by_partition, of_equality
from dr.repair.groups import move_groups_back
from dr.repair.inspection import Site, batch_at, damaged_ranges, judged_offsets
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.client.client_errors import KafkaClientError, error_code
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.batch_replacement_messages import REPLACE_BATCHES
from wire.protocol.messages.quarantine_messages import QUARANTINE_RECORDS
from wire.rules.links import blacklist_of, other_site

DISK_TIMEOUT_MS: Final = 60_000
"""Answers take longer if the broker first copies bytes to disk."""
UNCHANGED_MAX: Final = 3
"""A copy that has not grown for this many successive comparisons is not awaited any longer."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """The link, the brokers of its sites, and the offsets to examine; without `suspects` the sites
    are compared first.
    """

    record: LinkRecord
    bootstraps: dict[str, str]
    topic_whitelist: Sequence[str] = ()
    suspects: Sequence[Suspect] | None = None
    trusted_site: str = ""
    is_dry_run: bool = False
    settle_timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneOrder:
    """An executed order, and the quarantine entries with the bytes that it removed."""

    order: Order
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """The orders, the executed repairs, and the proof. `proof` is None in a dry run."""

    active_site: str
    standby_site: str
    orders: tuple[Order, ...]
    refused: tuple[Refused, ...]
    done: tuple[DoneOrder, ...] = ()
    problems: tuple[str, ...] = ()
    proof: EqualityReport | None = None

    @property
    def is_healed(self) -> bool:
        """True if nothing remains: no refusal, every order executed, and the sites proven equal."""
        is_proven = self.proof is not None and self.proof.verdict is Verdict.EQUAL
        return not self.refused and not self.problems and len(self.done) == len(self.orders) and is_proven


async def repair(
    request: RepairRequest,
    clock: Clock,
    *,
    confirm: Callable[[Sequence[Order]], None] = lambda _: None,
    restart_mirror: Callable[[Sequence[str]], Any] | None = None,
    progress: Progress = lambda _: None,
) -> RepairReport:
    """Repair the link. `confirm` is called before the first change and raises an error to prevent
    it; `restart_mirror` is awaited with the topics whose copies were truncated. Raises
    OperationalFailure when a site does not answer.
    """
    async with AsyncExitStack() as stack:
        clients = {
            site: await stack.enter_async_context(new_client(bootstrap))
            for site, bootstrap in request.bootstraps.items()
        }
        return await _Repair(
            request=request,
            clock=clock,
            clients=clients,
            confirm=confirm,
            restart_mirror=restart_mirror,
            progress=progress,
        ).run()


@dataclass(slots=True)
class _Repair:
    """One run."""

    request: RepairRequest
    clock: Clock
    clients: dict[str, Any]
    confirm: Callable[[Sequence[Order]], None]
    restart_mirror: Callable[[Sequence[str]], Any] | None
    progress: Progress
    _sides: RepairSides = field(init=False)

    def __post_init__(self) -> None:
        record = self.request.record
        active = record.active_site
        standby = other_site(record, active)
        trusted = self.request.trusted_site
        if trusted and trusted != active:
            raise OperationalFailure(
                f"--trust {trusted!r}: only the active site's log can be kept against the other one; accepted: {active}. "
                f"To keep the records of site {standby}, fail over to it first"
            )
        self._sides = RepairSides(
            active_site=active,
            standby_site=standby,
            leader_epoch_floor=record.leader_epoch_floor,
            is_active_trusted=bool(trusted),
        )

    async def run(self) -> RepairReport:
        """Compare, judge, execute the orders, and prove the result."""
        sides = self._sides
        suspects, followers = self.request.suspects, tuple[DamagedFollower, ...]()
        if suspects is None:
            suspects, followers = await self._compared()
        judged = await self._judged(by_partition(suspects))
        judged += await self._judged_followers(followers)
        report = RepairReport(
            active_site=sides.active_site,
            standby_site=sides.standby_site,
            orders=tuple(one for one in judged if not isinstance(one, Refused)),
            refused=tuple(one for one in judged if isinstance(one, Refused)),
        )
        if self.request.is_dry_run:
            return report
        if report.orders:
            self.confirm(report.orders)
        done, problems = await self._carried_out(report.orders)
        truncated = sorted({one.order.topic for one in done if isinstance(one.order, TruncateCopy)})
        # Before the proof: a mirror copies nothing into a FAULTED copy until it is asked to.
        if truncated and self.restart_mirror is not None:
            await self.restart_mirror(truncated)
        proof = await self._proof(is_awaited=bool(done))
        problems += [
            f"offset {one.first_offset} of {one.topic}-{one.partition} is not healed: {one.reason}"
            for one in await self._still_wanted(done)
        ]
        return replace(report, done=tuple(done), problems=tuple(problems), proof=proof)

    async def _compared(self) -> tuple[list[Suspect], tuple[DamagedFollower, ...]]:
        """The offsets that differ between the sites' leaders, and the damage at followers."""
        report = await compare_sites(self._comparison(), self.clock, self.progress)
        suspects = of_equality(report)
        for one in report.damaged:
            self.progress(f"looking for damaged batches of {one.topic}-{one.partition} at site {one.site}")
            digests = SiteDigests(one.site, self.clients[one.site], self.clock, self.progress)
            suspects += await damaged_ranges(digests, (one.topic, one.partition))
        if report.problems and not suspects and not report.damaged_followers:
            raise OperationalFailure("; ".join(report.problems))
        return suspects, report.damaged_followers

    def _comparison(self) -> ComparisonRequest:
        request, sides = self.request, self._sides
        return ComparisonRequest(
            source_site=sides.active_site,
            target_site=sides.standby_site,
            source_bootstrap=request.bootstraps[sides.active_site],
            target_bootstrap=request.bootstraps[sides.standby_site],
            topic_whitelist=request.topic_whitelist or tuple(request.record.topic_whitelist),
            topic_blacklist=blacklist_of(request.record),
            settle_timeout_ms=request.settle_timeout_ms,
        )

    async def _judged(self, suspects: dict[PartitionKey, tuple[int, int]]) -> list[Judged]:
        judged: list[Judged] = []
        absent = await self._absent(suspects)
        compacted = await self._compacted({topic for topic, index in suspects if (topic, index) not in absent})
        for key, (first, last) in suspects.items():
            if key in absent:
                reason = f"site {absent[key]} does not have it: it may have been deleted since the comparison"
                judged.append(
                    Refused(topic=key[0], partition=key[1], first_offset=first, last_offset=last, reason=reason)
                )
                continue
            if key[0] in compacted:
                reason = (
                    "each site compacts the topic on its own, so batches cannot be compared: "
                    "antipode links reset copies a damaged topic again"
                )
                judged.append(
                    Refused(topic=key[0], partition=key[1], first_offset=first, last_offset=last, reason=reason)
                )
                continue
            self.progress(f"reading {key[0]}-{key[1]} from offset {first} to {last} at both sites")
            judged += await judged_offsets(
                key,
                first,
                last,
                active=self._site(self._sides.active_site),
                standby=self._site(self._sides.standby_site),
                sides=self._sides,
            )
        return judged

    async def _absent(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """The partitions that a site does not have, with that site: a question about one of them
        would be repeated until the retries end.
        """
        absent: dict[PartitionKey, str] = {}
        wanted = list(keys)
        for site, client in self.clients.items() if wanted else ():
            topics = await SiteDigests(site, client, self.clock, self.progress).topics()
            absent |= {key: site for key in wanted if key[0] not in topics or key[1] not in topics[key[0]].partitions}
        return absent

    async def _judged_followers(self, damaged: Sequence[DamagedFollower]) -> list[Judged]:
        """The orders for followers: the bytes of the leader of their own site are preferred."""
        judged: list[Judged] = []
        compacted = await self._compacted({one.topic for one in damaged})
        for one in damaged:
            self.progress(f"reading {one.topic}-{one.partition} at offset {one.base_offset} for broker {one.node_id}")
            # False sorts first, so the own site comes first: its leader may have records that are
            # not mirrored yet.
            sites = sorted(self.clients, key=lambda name, own=one.site: name != own)  # type: ignore[misc]
            key = (one.topic, one.partition)
            offered = [(name, await batch_at(self._site(name), key, one.base_offset)) for name in sites]
            judged.append(judge_follower(one, offered, is_compacted=one.topic in compacted))
        return judged

    def _site(self, name: str) -> Site:
        return Site(name=name, client=self.clients[name])

    async def _compacted(self, topics: Iterable[str]) -> set[str]:
        names, site = sorted(topics), self._sides.active_site
        if not names:
            return set()
        try:
            configs = await self.clients[site].topic_configs(names, is_set_only=False)
        except KafkaClientError as error:
            raise OperationalFailure(f"site {site} does not answer: {error}") from error
        return {name for name, values in configs.items() if "compact" in (values.get("cleanup.policy") or "")}

    async def _carried_out(self, orders: Sequence[Order]) -> tuple[list[DoneOrder], list[str]]:
        done, problems = [], []
        for order in orders:
            place = f"{order.topic}-{order.partition} at offset {order.first_offset}"
            self.progress(f"{'replacing' if isinstance(order, ReplaceBatch) else 'truncating'} {place}: {order.reason}")
            try:
                if isinstance(order, ReplaceBatch):
                    entries = await self._replace(order)
                else:
                    entries = await self._truncate(order)
                done.append(DoneOrder(order=order, entries=entries))
            # The orders do not depend on each other: the next run plans those that failed.
            except (KafkaClientError, OperationalFailure) as error:
                problems.append(f"{place} at site {order.site}: {error}")
        return done, problems

    async def _replace(self, order: ReplaceBatch) -> tuple[str, ...]:
        client = self.clients[order.site]
        partition = {
            "topic": order.topic,
            "topic_id": await self._topic_id(order),
            "index": order.partition,
            "records": order.content,
        }
        outcome = await self._asked(client, order, REPLACE_BATCHES, {"reason": order.reason, "partitions": [partition]})
        return tuple(outcome.entries)

    async def _truncate(self, order: TruncateCopy) -> tuple[str, ...]:
        record = self.request.record
        if record.phase != LinkPhase.MIRRORING:
            raise OperationalFailure(f"link {record.name} is not mirroring: finish its failover first")
        client = self.clients[order.site]
        # Before the truncation: after it, the next run of an interrupted repair has no order here.
        key = (order.topic, order.partition)
        await move_groups_back(client, key, order.first_offset, record, self.progress)
        topic = {
            "name": order.topic,
            "topic_id": await self._topic_id(order),
            "partitions": [{"index": order.partition, "first_offset": order.first_offset}],
        }
        values = {
            "link": record.name,
            "link_epoch": record.epoch,
            "reason": f"repair: {order.reason}",
            "must_truncate": True,
            "topics": [topic],
        }
        outcome = await self._asked(client, order, QUARANTINE_RECORDS, values)
        return (outcome.name,) if outcome.name else ()

    async def _topic_id(self, order: Order) -> Any:
        metadata = await self.clients[order.site].metadata([order.topic])
        return metadata.topics[order.topic].topic_id

    async def _asked(self, client: Any, order: Order, api_key: int, values: dict[str, Any]) -> Any:
        """The single outcome. Raises OperationalFailure if the broker refuses, KafkaClientError if
        it does not answer.
        """
        node = order.node_id if isinstance(order, ReplaceBatch) else LEADER
        if node == LEADER:
            node = await client.leader(order.topic, order.partition)
        connection = await client.connection(node)
        response = await connection.call(api_key, values, timeout_ms=DISK_TIMEOUT_MS)
        (outcome,) = response.outcomes
        if code := error_code(outcome.error_code):
            raise OperationalFailure(f"{code.name}: {outcome.error_message or 'the broker gives no reason'}")
        return outcome

    async def _proof(self, *, is_awaited: bool) -> EqualityReport:
        """The comparison after the repair; with `is_awaited` it is repeated while the mirror copies
        the missing batches.
        """
        unchanged, before = 0, -1
        while True:
            proof = await compare_sites(self._comparison(), self.clock, self.progress)
            held = sum(one.end_offset for one in proof.partitions)
            unchanged = unchanged + 1 if held == before else 0
            if proof.verdict is Verdict.EQUAL or not is_awaited or unchanged >= UNCHANGED_MAX:
                return proof
            before = held
            self.progress("waiting for the mirror to copy the truncated offsets")
            # No pause: each comparison itself waits for a copy that is behind (settle_timeout_ms).
            await asyncio.sleep(0)

    async def _still_wanted(self, done: Sequence[DoneOrder]) -> list[Judged]:
        """Judge the replaced batches once more, because digests do not cover their bodies."""
        replaced = [one.order for one in done if isinstance(one.order, ReplaceBatch)]
        return await self._judged(
            by_partition(Suspect(one.topic, one.partition, one.first_offset, one.last_offset) for one in replaced)
        )
