"""Deliberate defects of the lease, of the playbook, of sync links and of the way back; each one
undoes a rule that exists for safety (`tests/sim/mutants.py` says what a mutant is).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.link_permits import LinkPermits
from broker.replication import mirror_append
from broker.replication.core.standby_hold import StandbyHold
from broker.replication.quarantine import Entry, Quarantine
from broker.replication.standbys import Standbys
from broker.site.forwarded_writes import ForwardedWrites
from controller.core.draft import Draft
from controller.core.partitions import epoch_raises
from controller.core.state import facts
from controller.stored import cluster_reader
from dr.agent import failover_watch, links_store
from dr.agent.arbiter import Arbiter
from dr.agent.core import lease
from dr.agent.core.lease import LeaseDecision, LeaseStep, LinkLeaseMachine
from dr.agent.leases import permits
from dr.agent.leases.marks import SyncMarks
from dr.agent.links_store import LinksStore
from dr.failover.core import playbook
from dr.failover.core.after_raise import AfterTheRaise
from dr.links import alteration
from dr.sites.core import settlement
from dr.sites.core.evidence import SiteEvidence
from dr.sites.site_client import STORE_TIMEOUT_MS, LinkChanges, SiteClient
from mirror.admin import histories
from runtime.process import OperationalFailure
from tests.sim.mutants import Mutant, Original
from tests.sim.seed_run import Kind
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.protocol.messages.produce_codec import PartitionProduced, ProduceRequest, TopicProduced
from wire.znodes.controller_znodes import decode_epoch_raise


def _always(value: Any) -> Any:
    return lambda _: lambda *__, **___: value


def _later_always(value: Any) -> Any:
    async def answer(*_: Any, **__: Any) -> Any:
        return value

    return lambda _: answer


def _opens_at_once(closed: Original) -> Original:
    def decision(self: LinkLeaseMachine, record: LinkRecord, arbiter: Any, *, left_ms: float) -> LeaseDecision:
        del left_ms
        found: LeaseDecision = closed(self, record, arbiter, left_ms=0)
        assert found.step is LeaseStep.OPEN
        return found

    return decision


def _counts_from_the_answer(_: Original) -> Original:
    """A permit that lasts for two leases from the request on."""
    return lambda *, asked_at_ms, lease_ms: asked_at_ms + 2 * lease_ms


def _keeps_no_record(_: Original) -> Original:
    async def keep(
        _: Quarantine,
        log: Any,
        first_offset: int,
        origin: Any,
        *,
        topic_id: bytes,
        now_ms: int,
        end_offset: int | None = None,
    ) -> Entry:
        del topic_id, now_ms
        end = log.log_end_offset if end_offset is None else end_offset
        return Entry(
            name="none",
            kind=origin.kind,
            topic=log.topic,
            partition=log.partition,
            first_offset=first_offset,
            end_offset=end,
            size_bytes=0,
        )

    return keep


def _shares_everything(_: Original) -> Original:
    """Histories are compared by their ends alone: the shorter one counts as the common one."""

    def end_of(one: Any, other: Any) -> int:
        return int(min(one.end_offset, other.end_offset))

    return end_of


def _keeps_the_band(raised: Original) -> Original:
    def record(before: LinkRecord, **options: Any) -> LinkRecord:
        found: LinkRecord = raised(before, **options)
        found.leader_epoch_floor = before.leader_epoch_floor
        return found

    return record


def _without_mark(_: Original) -> Original:
    async def mark(
        _: SyncMarks, kept: Any, record: Any, holder: Any, *, version: int | None, is_out_of_sync: bool
    ) -> None:
        del record, holder, version
        kept.is_out_of_sync = is_out_of_sync

    return mark


def _mirrors_in_any_epoch(_: Original) -> Original:
    def error(image: Any, topic: str, *, link_name: str, link_epoch: int) -> ErrorCode:
        del topic, link_epoch
        return ErrorCode.none if link_name in image.links else ErrorCode.unknown_leader_epoch

    return error


def _acknowledges_what_waited(_: Original) -> Original:
    async def results(_: ForwardedWrites, image: ClusterImage, request: ProduceRequest) -> list[TopicProduced]:
        del image
        return [
            TopicProduced(
                topic.name,
                topic.topic_id,
                [PartitionProduced(one.partition_index, base_offset=0) for one in topic.partitions],
            )
            for topic in request.topics
        ]

    return results


def _forgets_raises(_: Original) -> Original:
    """The raises are known by name, so that they end, and raise nothing."""
    return lambda name, payload: (0, decode_epoch_raise(name, payload)[1])


def _ends_at_once(_: Original) -> Original:
    def store_some(draft: Draft, *, count_max: int) -> None:
        del count_max
        for name in tuple(draft.cluster.raises):
            draft.record(facts.EpochRaiseEnded(name=name))

    return store_some


def _hides_the_loss_of_data(closed: Original) -> Original:
    def record(link: LinkRecord, before: ArbiterRecord | None, *, has_lost_data: bool) -> ArbiterRecord:
        del has_lost_data
        found: ArbiterRecord = closed(link, before, has_lost_data=False)
        return found

    return record


def _removes_the_lease_at_the_active_site_first(_: Original) -> Original:
    async def remove(
        name: str, changes: LinkChanges, *, active: SiteClient, standby: SiteClient, is_dry_run: bool
    ) -> LinkRecord:
        record = await active.alter_link(name, changes, is_dry_run=is_dry_run, timeout_ms=STORE_TIMEOUT_MS)
        with suppress(OperationalFailure):
            await standby.adopt_link(record, timeout_ms=STORE_TIMEOUT_MS)
        return record

    return remove


LINK_MUTANTS: Final[tuple[Mutant, ...]] = tuple(
    Mutant(kind=Kind.LINKS, seeds_max=150, **fields)
    for fields in (
        {
            "title": "the permit is not checked again before the acknowledgement",
            "known_seed": 11,
            "owner": LinkPermits,
            "name": "may_acknowledge",
            "substitute": _always(True),
        },
        {
            "title": "an epoch is opened before the permits of the one before have run out",
            "known_seed": 76,
            "owner": LinkLeaseMachine,
            "name": "_closed_decision",
            "substitute": _opens_at_once,
        },
        {
            "title": "a permit lasts longer than its lease",
            "known_seed": 53,
            "owner": permits,
            "name": "permit_until_ms",
            "substitute": _counts_from_the_answer,
        },
        {
            "title": "a renewal does not look at the arbiter's record",
            "known_seed": 41,
            "owner": Arbiter,
            "name": "renew",
            "substitute": _later_always(None),
        },
        {
            "title": "a standby makes its vow in any epoch",
            "known_seed": 6,
            "owner": links_store,
            "name": "may_vow",
            "substitute": _always(True),
        },
        {
            "title": "a standby forgets its vows",
            "known_seed": 121,
            "owner": LinksStore,
            "name": "vows",
            "substitute": _later_always({}),
        },
        {
            "title": "a record of an older epoch replaces a newer one",
            "known_seed": 103,
            "owner": links_store,
            "name": "supersedes",
            "substitute": lambda _: lambda new, old: new != old,
        },
        {
            "title": "a promoted site writes in the leader epochs of the other one",
            "known_seed": 2,
            "owner": playbook,
            "name": "raised",
            "substitute": _keeps_the_band,
        },
        {
            "title": "a switchover does not wait for the fence",
            "known_seed": 17,
            "owner": SiteEvidence,
            "name": "is_fenced",
            "substitute": lambda _: property(lambda _: True),
        },
        {
            "title": "a failover keeps no account",
            "known_seed": 5,
            "is_long": True,
            "owner": AfterTheRaise,
            "name": "may_account",
            "substitute": _always(False),
        },
        {
            "title": "a site promotes itself through closed gates (F16)",
            "known_seed": 176,
            "owner": failover_watch,
            "name": "closed_gates",
            "substitute": _always([]),
        },
        {
            "title": "a mirror of an older epoch may append",
            "known_seed": 30,
            "owner": mirror_append,
            "name": "mirror_error",
            "substitute": _mirrors_in_any_epoch,
        },
        {
            "title": "records are truncated without a quarantine",
            "known_seed": 5,
            "owner": Quarantine,
            "name": "keep",
            "substitute": _keeps_no_record,
        },
        {
            "title": "a returning copy is truncated without a look at leader epochs",
            "known_seed": 649,
            "is_long": True,
            "owner": histories,
            "name": "shared_end",
            "substitute": _shares_everything,
        },
        {
            "title": "an account is final before the old site has given its records up",
            "known_seed": 136,
            "owner": settlement,
            "name": "_has_own",
            "substitute": _always(False),
        },
        {
            "title": "a sync link does not wait for the standby",
            "known_seed": 7,
            "owner": StandbyHold,
            "name": "bound",
            "substitute": lambda _: property(lambda _: None),
        },
        {
            "title": "writes that waited for a move are acknowledged without the other site's answer",
            "known_seed": 2,
            "owner": ForwardedWrites,
            "name": "results",
            "substitute": _acknowledges_what_waited,
        },
        {
            "title": "a link degrades without a mark at the arbiter",
            "known_seed": 26,
            "owner": SyncMarks,
            "name": "_mark",
            "substitute": _without_mark,
        },
        {
            "title": "a new controller forgets a raise of leader epochs that is not in all states",
            "known_seed": 18,
            "owner": cluster_reader,
            "name": "decode_epoch_raise",
            "substitute": _forgets_raises,
        },
        {
            "title": "a raise of leader epochs ends before the states of its partitions are stored",
            "known_seed": 8,
            "owner": epoch_raises,
            "name": "store_some",
            "substitute": _ends_at_once,
        },
        {
            "title": "a lease is removed at the active site before the standby",
            "known_seed": 4,
            "owner": alteration,
            "name": "_remove_lease",
            "substitute": _removes_the_lease_at_the_active_site_first,
        },
        {
            "title": "an arbiter that has lost its data is believed",
            "known_seed": 24,
            "owner": lease,
            "name": "_closed",
            "substitute": _hides_the_loss_of_data,
        },
        {
            "title": "a link becomes a sync link without a mark",
            "known_seed": 124,
            "owner": Standbys,
            "name": "wants_mark",
            "substitute": _always(False),
        },
    )
)
