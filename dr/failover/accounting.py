"""Makes the account of a failover, from the playbook's knowledge and the target's logs: before the
epoch is raised if the drain was complete, which makes the account final, otherwise after the
raise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dr.failover.core.loss_counting import account
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.promotion import failed_over_from, kept_ends
from dr.failover.log_ends import site_client
from dr.sites.core.access_rules import access_loss
from dr.sites.core.evidence import Evidence, SiteEvidence, SiteGroups
from dr.sites.core.group_offsets import group_loss
from dr.sites.core.log_columns import LogEnds
from dr.sites.core.loss import LossAccount
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient
from runtime.process import OperationalFailure
from wire.client.client_errors import KafkaClientError
from wire.client.requests.broker_requests import EpochQuery
from wire.client.security import ClientSecurity
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.links import truncates_logs


class Accounting:
    """The accounts of one run."""

    def __init__(
        self, link: str, *, target: SiteClient, playbook: FailoverPlaybook, security: ClientSecurity | None
    ) -> None:
        self._link = link
        self._target = target
        self._playbook = playbook
        self._security = security

    def before_the_raise(self, record: LinkRecord, evidence: Evidence | None, *, unix_ms: int) -> LossAccount | None:
        """The account of the record's epoch, if nothing can change it later; None if it has to be
        made after the raise.
        """
        if evidence is None or evidence.target is None or truncates_logs(record):
            return None
        is_raised = evidence.governing.epoch == record.epoch
        if is_raised or not self._playbook.has_everything(evidence):
            return None
        kept, unclear = self._kept(record, evidence.target)
        if unclear:
            return None
        return self._account(record, evidence.target, kept, self._playbook.source.groups, unix_ms=unix_ms)

    async def after_the_raise(
        self, record: LinkRecord, evidence: SiteEvidence, observer: LinkObserver, *, unix_ms: int
    ) -> LossAccount:
        """The account from the target's evidence, with groups, and with the source's groups if it
        answers. Raises OperationalFailure.
        """
        kept, unclear = self._kept(record, evidence)
        if unclear:
            # Clients have already written here, so the leader epochs in the log show where the
            # mirrored part ends.
            kept = {**kept, **await self._look_up_ends(unclear, record, evidence)}
        # The source is asked again: an earlier run may have died with its answer.
        groups = await observer.source_groups() or self._playbook.source.groups
        return self._account(record, evidence, kept, groups, unix_ms=unix_ms)

    def _kept(self, record: LinkRecord, evidence: SiteEvidence) -> tuple[LogEnds, list[TopicPartition]]:
        return kept_ends(evidence, floor=record.leader_epoch_floor, before=self._playbook.drained_ends)

    async def _look_up_ends(
        self, keys: Sequence[TopicPartition], record: LinkRecord, evidence: SiteEvidence
    ) -> dict[TopicPartition, int]:
        """The ends of the older leader epochs in logs to which clients have written since the
        promotion. OperationalFailure.
        """
        view = await self._target.view(asking_site=failed_over_from(record))
        ends: dict[TopicPartition, int] = {}
        query = EpochQuery(record.leader_epoch_floor - 1)
        try:
            async with site_client(view, self._security) as client:
                await client.metadata(sorted({key.topic for key in keys}))
                for key in keys:
                    found = (await client.epoch_ends(await client.leader(*key), {key: query}))[key]
                    # Retention may have deleted the whole mirrored part; then its end is the log
                    # start.
                    ends[key] = max(found.end_offset, evidence.partitions[key].log_start_offset)
        except KafkaClientError as error:
            raise OperationalFailure(f"site {evidence.site} does not report the ends of its logs: {error}") from error
        return ends

    def _account(
        self,
        record: LinkRecord,
        evidence: SiteEvidence,
        kept: Mapping[TopicPartition, int],
        source_groups: SiteGroups | None,
        *,
        unix_ms: int,
    ) -> LossAccount:
        playbook, from_site = self._playbook, failed_over_from(record)
        return account(
            link=self._link,
            epoch=record.epoch,
            from_site=from_site,
            to_site=record.active_site,
            kept=kept,
            target=evidence.partitions,
            source=playbook.source.ends,
            now_ms=unix_ms,
            unprotected=evidence.unprotected,
            peer_seen_at_ms=evidence.peer_seen_at_ms,
            differences=playbook.source.differences(evidence, source_site=from_site, ends=kept),
            leader_epoch_floor=record.leader_epoch_floor,
            is_planned=playbook.is_planned,
            access=access_loss(evidence.access, has_all=playbook.source.is_access_carried),
            groups=group_loss(
                source_groups,
                evidence.groups or SiteGroups(),
                evidence.partitions,
                is_fenced=playbook.source.is_fence_proven,
                is_routed=record.is_routed,
                now_ms=unix_ms,
            ),
        )
