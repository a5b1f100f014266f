"""Changes of links. After this site's own checks, each change is stored in the site's ZooKeeper by
compare-and-set; the agent answers when every live broker enforces it.
"""

from __future__ import annotations

import contextlib

import grpc

from dr.agent.answers.answering import ARBITER_TIMEOUT_MS, Answers, Context, Refusal, answers, refuse_argument
from dr.agent.arbiter import ArbiterSilent, KeptRecord
from dr.agent.core.following import without_standby
from dr.agent.core.policy_changes import with_policies
from dr.agent.links_store import LinkConflict, awaits_truncation
from dr.sites.core.fencing import FIRST_EPOCH
from dr.sites.core.link_checks import automatic_problems, record_problems
from dr.sites.link_addresses import address_problems
from wire.control import site_pb2 as site
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.rules.links import SyncPolicy, sync_policy
from wire.znodes.arbiter_znodes import Holder
from wire.znodes.documents import MalformedZnode

CONFIRM_TIMEOUT_MS = 5_000
CONFIRM_LEASES = 2
"""Further leases that a confirmation may take: the old one runs out, and brokers get the permits of
the new one.
"""
WAITING = (SyncPolicy.BLOCK, SyncPolicy.DEGRADE)
"""Sync policies under which the standby lacks nothing while no broker is marked at the arbiter."""
ADOPT_TIMEOUT_MS = 10_000
"""Used when the caller gives no timeout."""


class LinkChanges(Answers):
    """Creates, alters and deletes links, and adopts what other sites have stored."""

    @answers
    async def CreateLink(self, request: site.CreateLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Store a new link after this site's own checks."""
        record = request.record
        if problems := [*record_problems(record), *address_problems(record)]:
            refuse_argument(problems)
        if self._site not in (record.source_site, record.target_site):
            refuse_argument([f"site {self._site} is neither its source nor its target"])
        if problems := self._overlaps(record):
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "; ".join(problems))
        left = await self._left_at_arbiter(record) if record.lease_ms else None
        stored = await self._parts.store.create(record)
        if left is not None:
            # Not before: now it is certain that this site had no link of this name, so no broker of
            # it holds a permit under the former record.
            await self._forget_former(left)
        self._state_change.info("link created", link=stored.name, epoch=stored.epoch, active=stored.active_site)
        return site.LinkReply(record=stored)

    async def _left_at_arbiter(self, record: LinkRecord) -> ArbiterRecord | None:
        """The arbiter's record of a former link of this name that this site has to remove, or None.
        Under it the arbiter would grant the new link no permit. It stays when the arbiter did not
        answer after the deletion. The site that was active in it removes it; the record of other
        sites is refused.
        """
        try:
            held = await self._parts.arbiter.record(record.name, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(silent)) from silent
        if held is None or (held.record.epoch, held.record.active_site) == (record.epoch, record.active_site):
            return None
        former = held.record
        if record.epoch != FIRST_EPOCH or former.active_site not in (record.source_site, record.target_site):
            message = (
                f"the arbiter knows another link {record.name!r}, at epoch {former.epoch} with "
                f"{former.active_site} active: choose another name, or another chroot for the arbiter"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
        return former if former.active_site == self._site else None

    async def _forget_former(self, left: ArbiterRecord) -> None:
        try:
            await self._parts.arbiter.delete(left.link, epoch=left.epoch, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            message = (
                f"{silent}, and has the record of a former link {left.link!r}, at epoch {left.epoch}: make the link "
                "again when the arbiter answers"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message) from silent
        self._state_change.info("record of a former link removed at the arbiter", link=left.link, epoch=left.epoch)

    @answers
    async def DeleteLink(self, request: site.DeleteLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Delete a link and its accounts, also at the arbiter; topics and records stay."""
        stored, _version = await self._parts.store.get(request.name)
        if stored.lease_ms and stored.epoch == request.epoch:
            await self._check_arbiter_answers(request.name)
        others = self._parts.cache.facts.links.values()
        beside = without_standby(others, stored, site=self._site, now_ms=self._clock.now_ms())
        stored = await self._parts.store.delete(request.name, epoch=request.epoch, beside=beside)
        if stored.lease_ms:
            await self._forget_at_arbiter(stored)
        self._state_change.info("link deleted", link=stored.name, epoch=stored.epoch)
        return site.LinkReply(record=stored)

    async def _check_arbiter_answers(self, link: str) -> None:
        try:
            with contextlib.suppress(MalformedZnode):
                await self._parts.arbiter.record(link, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            message = (
                f"{silent}, and would keep link {link!r}: remove the lease first (antipode links alter --lease-ms 0)"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message) from silent

    async def _forget_at_arbiter(self, link: LinkRecord) -> None:
        """Forget a link that this site has deleted. Not before: a failover may raise its epoch
        until then, and must wait for the permits that the arbiter knows. An active site that
        reaches the arbiter writes under this record until it has deleted the link too, and forgets
        it then.
        """
        arbiter, active = self._parts.arbiter, link.active_site
        try:
            if active != self._site and await arbiter.present(active, timeout_ms=ARBITER_TIMEOUT_MS):
                self._state_change.info("link stays at the arbiter", link=link.name, reason=f"{active} may write")
                return
            await arbiter.delete(link.name, epoch=link.epoch, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            self._state_change.warning("link stays at the arbiter", link=link.name, reason=str(silent))

    @answers
    async def AdoptLink(self, request: site.AdoptLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Store the record if it supersedes the stored one, then wait until every live broker
        enforces the stored record.
        """
        await self._check_arbiter(request.record)
        try:
            stored = await self._parts.store.adopt(
                request.record, account=request.account_json, unless_accounted=request.unless_accounted
            )
        except LinkConflict as conflict:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(conflict)) from conflict
        self._state_change.info(
            "link adopted",
            link=stored.name,
            epoch=stored.epoch,
            active=stored.active_site,
            phase=stored.phase,
            sync_policy=stored.sync_policy,
        )
        return site.LinkReply(record=stored, has_leaders=await self._enforced(stored, request.timeout_ms))

    async def _check_arbiter(self, record: LinkRecord) -> None:
        """Refuse a record that would make this site active under a lease while the arbiter does not
        answer, or has another epoch; nothing is stored then. The check does not apply to a site
        that is already active.
        """
        stored, _version = await self._parts.store.get(record.name)
        if not record.lease_ms or record.active_site != self._site or stored.active_site == self._site:
            return
        try:
            held = await self._parts.arbiter.record(record.name, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            message = (
                f"{silent}: {self._site} becomes active for link {record.name!r} only with the arbiter, which may have "
                "granted permits to the other site"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message) from silent
        _refuse_newer(held, record)

    async def _check_new_lease(self, record: LinkRecord) -> None:
        """Refuse to give a link a lease while the arbiter does not answer, or has another epoch of
        a link with this name: the site would stop writing.
        """
        try:
            held = await self._parts.arbiter.record(record.name, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(silent)) from silent
        try:
            _refuse_newer(held, record)
        except Refusal as refusal:
            message = f"{refusal}; if a former link of this name has left that record, delete the link and create it again with its lease"
            raise Refusal(refusal.code, message) from refusal

    @answers
    async def GrantVow(self, request: site.GrantVowRequest, _: Context) -> site.GrantVowReply:  # noqa: N802
        """Promise not to be promoted over the epoch for one lease."""
        holder = Holder(request.asking_site, request.node_id)
        if request.is_release:
            await self._parts.store.release_vow(request.link, holder)
            return site.GrantVowReply()
        try:
            await self._parts.store.grant_vow(
                request.link, epoch=request.epoch, asking_site=request.asking_site, holder=holder
            )
        except LinkConflict as conflict:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(conflict)) from conflict
        return site.GrantVowReply()

    @answers
    async def AlterLink(self, request: site.AlterLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Change the link's policies at its active site, where acks=all waits, and wait until every
        live broker enforces them.
        """
        stored, _version = await self._parts.store.get(request.name)
        if stored.active_site != self._site:
            message = f"link {stored.name!r} can be changed only at its active site, which is {stored.active_site}, not {self._site}"
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
        try:
            record = with_policies(stored, request, now_ms=self._clock.now_ms())
        except ValueError as error:
            refuse_argument([str(error)])
        if problems := record_problems(record):
            refuse_argument(problems)
        # A record that was automatic before is not refused another change because of its mode.
        if stored.failover_mode != record.failover_mode and (problems := self._automatic(record)):
            refuse_argument(problems)
        if stored.lease_ms and record.lease_ms not in (0, stored.lease_ms):
            refuse_argument([f"the lease is {stored.lease_ms} ms: set it to 0 first, then to {record.lease_ms}"])
        if record.lease_ms and not stored.lease_ms:
            await self._check_new_lease(record)
        if request.is_dry_run:
            return site.LinkReply(record=record)
        may_open = self._parts.peers.is_confirmed(stored)
        if await self._parts.store.adopt(record) != record:
            raise Refusal(
                grpc.StatusCode.ABORTED,
                f"another change of link {stored.name!r} was stored first: read the link again, then repeat the change",
            )
        if record is not stored:
            self._state_change.info(
                "link altered",
                link=record.name,
                epoch=record.epoch,
                revision=record.revision,
                sync_policy=record.sync_policy,
                sync_timeout_ms=record.sync_timeout_ms,
                former_sync_policy=stored.sync_policy,
                reinstate_policy=record.reinstate_policy,
                lease_ms=record.lease_ms,
                failover_mode=record.failover_mode,
            )
        if record.lease_ms and may_open:
            self._parts.leases.request_open(record, is_writing=not stored.lease_ms)
        await self._enforced(record, request.timeout_ms)
        await self._check_marks(stored, record, request.timeout_ms)
        return site.LinkReply(record=record)

    async def _check_marks(self, before: LinkRecord, record: LinkRecord, timeout_ms: int) -> None:
        """Wait for the marks of a link that becomes a sync link: the standby may lack records that
        were acknowledged before, and must not be promoted by itself then.
        """
        was_waiting, is_waiting = (sync_policy(one) in WAITING for one in (before, record))
        if not record.lease_ms or was_waiting or not is_waiting:
            return
        problems = await self._parts.brokers.wait_marked(record, timeout_ms=timeout_ms or ADOPT_TIMEOUT_MS)
        if problems:
            message = (
                f"the change of link {record.name!r} is in force at site {self._site}, but {'; '.join(problems)}: until "
                "then the standby may be promoted by itself without records that were acknowledged before"
            )
            raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message)

    def _automatic(self, record: LinkRecord) -> list[str]:
        cache = self._parts.cache
        return automatic_problems(record, site=self._site, links=cache.facts.links.values(), topics=cache.topic_names)

    async def _enforced(self, stored: LinkRecord, timeout_ms: int) -> bool:
        """Wait until every live broker enforces the record; return whether each partition has a
        leader above its floor.
        """
        found = await self._parts.brokers.wait_enforced(stored, timeout_ms=timeout_ms or ADOPT_TIMEOUT_MS)
        if found.problems:
            named = "; ".join(found.problems)
            message = f"epoch {stored.epoch} is stored at site {self._site}, but not enforced: {named}"
            raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message)
        return found.has_leaders

    @answers
    async def ConfirmLink(self, request: site.ConfirmSiteLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Confirm the stored epoch by the operator's decision, without asking the peer."""
        stored, _version = await self._parts.store.get(request.name)
        if stored.epoch != request.epoch:
            message = f"link {stored.name!r} is at epoch {stored.epoch}, not {request.epoch}"
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
        if stored.active_site == self._site and await awaits_truncation(stored, self._parts.store):
            message = (
                f"a failover has not truncated the logs of {self._site} yet, for epoch {stored.epoch} of link "
                f"{stored.name!r}: run it again to finish it (antipode failover {stored.name} --to {self._site})"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
        if stored.lease_ms:
            self._parts.leases.request_open(stored)
        brokers, timeout_ms = self._parts.brokers, CONFIRM_TIMEOUT_MS + CONFIRM_LEASES * stored.lease_ms
        found = await brokers.confirm(stored.name, epoch=stored.epoch, timeout_ms=timeout_ms)
        if problems := found.problems:
            if lease := self._parts.leases.lease(stored):
                problems.append(lease.problem)
            raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "; ".join(filter(None, problems)))
        self._parts.peers.note_confirmed(stored)
        self._state_change.info("link confirmed by the operator", link=stored.name, epoch=stored.epoch)
        return site.LinkReply(record=stored, are_writable=found.are_writable)


def _refuse_newer(held: KeptRecord | None, record: LinkRecord) -> None:
    """Refuse a record that the arbiter would give no permit: it has a later epoch, or another
    active site in this one.
    """
    if held is None or held.record.epoch < record.epoch:
        return
    if held.record.epoch > record.epoch or held.record.active_site != record.active_site:
        message = (
            f"the arbiter is at epoch {held.record.epoch} of link {record.name!r} with {held.record.active_site} "
            f"active, not at {record.epoch} with {record.active_site}"
        )
        raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
