"""Link records in a site's ZooKeeper, changed by compare-and-set only.

`adopt` resolves conflicts between two operators: a record replaces the stored one only if it
supersedes it; otherwise the answer is the stored record. After a write with an unknown outcome
(connection lost), the store reads the znode again before it tries anything else. That read may be
served by a server that does not have the write yet, and the next write is refused then: so the
store also reads the znode again after a refusal, before the budget can end the retries.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from dr.agent.account_store import WRITE_BUDGET_MS, AccountStore, LinkUnknown
from dr.agent.core.lease import may_vow
from dr.agent.site_cache import DISCONNECTED
from runtime.retries import jittered_backoff
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CheckNode, CreateNode, DeleteNode, SetNode, TransactionStep
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkProtection, LinkRehearsal, LinkVerification
from wire.rules.links import supersedes, truncates_logs
from wire.znodes import layout as znodes
from wire.znodes import link_znodes
from wire.znodes.arbiter_znodes import Holder
from wire.znodes.documents import MalformedZnode
from wire.znodes.link_znodes import decode_link, encode_link

RUNS_KEPT_MAX = 100


class LinkConflict(Exception):
    """The record stored under this name is not the one that the caller expects."""

    def __init__(self, message: str, stored: LinkRecord) -> None:
        super().__init__(message)
        self.stored = stored


class LinksStore:
    """The `/antipode/links` tree of one site."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.accounts = AccountStore(zookeeper)

    async def get(self, name: str) -> tuple[LinkRecord, int]:
        """The stored record and its znode version. Raises LinkUnknown."""
        found = await self._zookeeper.get_or_none(znodes.link_path(name))
        if found is None:
            raise LinkUnknown(name)
        return decode_link(name, found[0]), found[1].version

    async def create(self, record: LinkRecord) -> LinkRecord:
        """Store a new link; success if an identical one is stored already. Raises LinkConflict when
        a different one is stored.
        """
        async for attempt in jittered_backoff(retry_on=DISCONNECTED, budget_ms=WRITE_BUDGET_MS):
            with attempt:
                await self._zookeeper.ensure_path(znodes.LINKS)
                try:
                    await self._zookeeper.create(znodes.link_path(record.name), encode_link(record))
                except NodeExistsError:
                    stored, _ = await self.get(record.name)
                    if stored != record:
                        raise LinkConflict(f"link {record.name!r} already exists with another record", stored) from None
        return record

    async def join(self, record: LinkRecord, *, beside: str) -> bool:
        """Store a link that another site made, if the own link `beside` still names both ends of
        it; False if it is stored already. Raises LinkUnknown, LinkConflict.
        """
        path = znodes.link_path(record.name)
        async for attempt in jittered_backoff(retry_on=(*DISCONNECTED, BadVersionError), budget_ms=WRITE_BUDGET_MS):
            with attempt:
                if await self._zookeeper.exists(path) is not None:
                    return False
                known, version = await self.get(beside)
                if not {record.source_site, record.target_site} <= known.sites.keys():
                    raise LinkConflict(f"link {beside!r} does not name both ends of {record.name!r}", known)
                # An operator who deletes the link also changes the one beside it: the deleted link
                # must not come back.
                check = CheckNode(path=znodes.link_path(beside), version=version)
                with contextlib.suppress(NodeExistsError):
                    await self._zookeeper.transaction([check, CreateNode(path=path, value=encode_link(record))])
                    return True
        return False

    async def adopt(self, record: LinkRecord, *, account: str = "", unless_accounted: bool = False) -> LinkRecord:
        """Store `record` if it supersedes the stored one, together with the account of the failover
        that leads to its epoch, if given. Return the record that is stored then. Raises
        LinkUnknown; with `unless_accounted` LinkConflict if the account of the epoch before is
        stored.
        """
        stored = record
        async for attempt in jittered_backoff(
            retry_on=(*DISCONNECTED, BadVersionError), initial_ms=10, budget_ms=WRITE_BUDGET_MS
        ):
            with attempt:
                stored, version = await self.get(record.name)
                if supersedes(record, stored) and unless_accounted:
                    stored = await self._adopt_unaccounted(stored, version, record)
                elif supersedes(record, stored):
                    stored = await self._adopt_over(version, record, account)
        return stored

    async def _adopt_unaccounted(self, stored: LinkRecord, version: int, record: LinkRecord) -> LinkRecord:
        """Store `record` over that version if the account of the stored epoch does not exist: its
        creation in the same transaction fails otherwise. So no client has written in that epoch,
        if that had to wait for the account, and none will.
        """
        kept = link_znodes.failover_path(stored.name, stored.epoch)
        steps: list[TransactionStep] = [
            SetNode(path=znodes.link_path(record.name), value=encode_link(record), version=version),
            CreateNode(path=kept),
            DeleteNode(path=kept),
        ]
        try:
            await self._transact_below_failovers(record.name, steps)
        except NodeExistsError as error:
            message = f"the account of epoch {stored.epoch} is stored: clients may have written in that epoch"
            raise LinkConflict(message, stored) from error
        return record

    async def _transact_below_failovers(self, link: str, steps: Sequence[TransactionStep]) -> None:
        try:
            await self._zookeeper.transaction(steps)
        except NoNodeError:
            # Only the first failover of a link finds no parent, so it is not looked for before:
            # writers wait. Not `ensure_path`: it would create the node of a deleted link again.
            with contextlib.suppress(NodeExistsError):
                await self._zookeeper.create(link_znodes.failovers_path(link))
            await self._zookeeper.transaction(steps)

    async def _adopt_over(self, version: int, record: LinkRecord, account: str) -> LinkRecord:
        """Store `record` over that version, and return the record that is stored then."""
        try:
            await self._replace(record, version=version, account=account)
        except BadVersionError:
            stored, _ = await self.get(record.name)
            if supersedes(record, stored):
                raise
            return stored
        return record

    async def replace(self, record: LinkRecord, *, instead_of: LinkRecord | None) -> bool:
        """Store `record` if the stored one is `instead_of`; False if it is another one. Raises
        LinkUnknown.
        """
        stored, version = await self.get(record.name)
        if stored != instead_of:
            return False
        with contextlib.suppress(BadVersionError):
            await self._replace(record, version=version, account="")
            return True
        return False

    async def _replace(self, record: LinkRecord, *, version: int, account: str) -> None:
        path = znodes.link_path(record.name)
        if not account:
            await self._zookeeper.set(path, encode_link(record), version=version)
            return
        kept, payload = link_znodes.failover_path(record.name, record.epoch), link_znodes.encode_account(account)
        raised = SetNode(path=path, value=encode_link(record), version=version)
        # One transaction: a killed run must not leave an epoch whose final account is lost.
        try:
            await self._transact_below_failovers(record.name, [raised, CreateNode(path=kept, value=payload)])
        except NodeExistsError:
            await self._zookeeper.transaction([raised, SetNode(path=kept, value=payload)])

    async def delete(self, name: str, *, epoch: int, beside: Sequence[LinkRecord] = ()) -> LinkRecord:
        """Delete the link and its accounts if it is at `epoch`, and store the records in `beside`
        in the same transaction, each a revision of the stored one. Nothing is deleted with
        LinkUnknown and LinkConflict.
        """
        stored = LinkRecord(name=name, epoch=epoch)
        async for attempt in jittered_backoff(
            retry_on=(*DISCONNECTED, BadVersionError, NotEmptyError, NoNodeError), budget_ms=WRITE_BUDGET_MS
        ):
            with attempt:
                try:
                    stored, version = await self.get(name)
                except LinkUnknown:
                    if attempt.retry_state.attempt_number > 1:
                        break  # The previous attempt has deleted it, and only its answer was lost.
                    raise
                if stored.epoch != epoch:
                    raise LinkConflict(f"link {name!r} is at epoch {stored.epoch}, not {epoch}", stored)
                # One transaction: a failover that raises the epoch meanwhile needs the accounts and
                # the vows.
                path = znodes.link_path(name)
                steps: list[TransactionStep] = [DeleteNode(path=below) for below in await self._nodes_below(path)]
                steps.append(DeleteNode(path=path, version=version))
                for record in beside:
                    known, known_version = await self.get(record.name)
                    if supersedes(record, known):
                        beside_path = znodes.link_path(record.name)
                        steps.append(SetNode(path=beside_path, value=encode_link(record), version=known_version))
                try:
                    await self._zookeeper.transaction(steps)
                except (BadVersionError, NoNodeError):
                    is_repeated = attempt.retry_state.attempt_number > 1
                    if is_repeated and await self._zookeeper.get_or_none(path) is None:
                        break
                    raise
        return stored

    async def _nodes_below(self, path: str) -> list[str]:
        """The znodes below this one, each behind its own children."""
        try:
            children = [f"{path}/{name}" for name in await self._zookeeper.children(path)]
        except NoNodeError:
            return []
        below = await asyncio.gather(*map(self._nodes_below, children))
        return [one for child, under in zip(children, below, strict=True) for one in (*under, child)]

    async def protection(self, link: str) -> LinkProtection | None:
        """The last stored verdict on the link's protection; None before the first one."""
        found = await self._zookeeper.get_or_none(link_znodes.protection_path(link))
        return None if found is None else link_znodes.decode_protection(link, found[0])

    async def store_protection(self, link: str, protection: LinkProtection) -> None:
        """Store a verdict on an existing link. NoNodeError: the link was deleted."""
        await self._store_beside(link_znodes.protection_path(link), link_znodes.encode(protection))

    async def verification(self, link: str) -> LinkVerification | None:
        """Return the stored state of the link's proof of equality; None before the first
        comparison.
        """
        found = await self._zookeeper.get_or_none(link_znodes.verification_path(link))
        return None if found is None else link_znodes.decode_verification(link, found[0])

    async def store_verification(self, link: str, verification: LinkVerification) -> None:
        """Store the state of a link's proof. NoNodeError: the link was deleted."""
        await self._store_beside(link_znodes.verification_path(link), link_znodes.encode(verification))

    async def record_run(self, link: str, *, run: str, document: str) -> None:
        """Store the state of a failover run; only the newest RUNS_KEPT_MAX runs are kept. Raises
        LinkUnknown.
        """
        await self.get(link)
        parent, path = link_znodes.runs_path(link), link_znodes.run_path(link, run)
        async for attempt in jittered_backoff(retry_on=(*DISCONNECTED, NoNodeError), budget_ms=WRITE_BUDGET_MS):
            with attempt:
                await self._zookeeper.ensure_path(parent)
                await self._store_beside(path, document.encode())
                # The names of runs begin with their time, so they sort by age.
                for old in sorted(await self._zookeeper.children(parent))[:-RUNS_KEPT_MAX]:
                    with contextlib.suppress(NoNodeError):
                        await self._zookeeper.delete(f"{parent}/{old}")

    async def runs(self, link: str) -> list[str]:
        """The stored runs, oldest first."""
        parent = link_znodes.runs_path(link)
        try:
            names = sorted(await self._zookeeper.children(parent))
        except NoNodeError:
            return []
        found = await self._zookeeper.get_many([f"{parent}/{name}" for name in names])
        return [one[0].decode() for one in found if one is not None]

    async def rehearsal(self, link: str) -> LinkRehearsal | None:
        """The last rehearsal on clones of this site's logs; None before the first."""
        found = await self._zookeeper.get_or_none(link_znodes.rehearsal_path(link))
        return None if found is None else link_znodes.decode_rehearsal(link, found[0])

    async def store_rehearsal(self, link: str, rehearsal: LinkRehearsal) -> LinkRecord:
        """Store the result of a rehearsal; return the link's record. Raises LinkUnknown."""
        record, _ = await self.get(link)
        await self._store_beside(link_znodes.rehearsal_path(link), link_znodes.encode(rehearsal))
        return record

    async def _store_beside(self, path: str, payload: bytes) -> None:
        try:
            await self._zookeeper.set(path, payload)
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):  # A concurrent agent has created it.
                await self._zookeeper.create(path, payload)

    async def grant_vow(self, link: str, *, epoch: int, asking_site: str, holder: Holder) -> None:
        """Promise a broker of the active site that this site is not promoted over `epoch` for now.
        The holder is stored in one transaction with a check of the link's record. Raises
        LinkUnknown, LinkConflict.
        """
        mark = link_znodes.vow_path(link, holder.node)
        async for attempt in jittered_backoff(
            retry_on=(*DISCONNECTED, BadVersionError, NodeExistsError, NoNodeError),
            initial_ms=10,
            budget_ms=WRITE_BUDGET_MS,
        ):
            with attempt:
                stored, version = await self.get(link)
                if not may_vow(stored, epoch=epoch, asking_site=asking_site):
                    raise LinkConflict(
                        f"link {link!r} is at epoch {stored.epoch} with {stored.active_site} active here", stored
                    )
                steps: list[TransactionStep] = [CheckNode(path=znodes.link_path(link), version=version)]
                if await self._zookeeper.exists(mark) is None:
                    await self._zookeeper.ensure_path(link_znodes.vows_path(link))
                    steps.append(CreateNode(path=mark))
                else:
                    # The new zxid shows the other agents of this site that the vow is a new one.
                    steps.append(SetNode(path=mark, value=b""))
                await self._zookeeper.transaction(steps)

    async def release_vow(self, link: str, holder: Holder) -> None:
        """Remove the vow: the broker holds no permit by it."""
        with contextlib.suppress(NoNodeError):
            await self._zookeeper.delete(link_znodes.vow_path(link, holder.node))

    async def vows(self, link: str) -> dict[str, int]:
        """The brokers that may hold permits by this site's vow, each with the zxid of its last
        grant.
        """
        try:
            nodes = await self._zookeeper.children(link_znodes.vows_path(link))
        except NoNodeError:
            return {}
        stats = {node: await self._zookeeper.exists(link_znodes.vow_path(link, node)) for node in nodes}
        return {node: stat.mzxid for node, stat in stats.items() if stat is not None}

    async def forget_vows(self, link: str) -> None:
        """Remove all vows: no permit by a vow of this site is valid."""
        for node in await self.vows(link):
            with contextlib.suppress(NoNodeError):
                await self._zookeeper.delete(link_znodes.vow_path(link, node))

    async def store_opened(self, link: str, epoch: int) -> None:
        """Store that the arbiter has opened the epoch for this site. NoNodeError: the link was
        deleted.
        """
        await self._store_beside(link_znodes.opened_path(link), str(epoch).encode())

    async def opened(self, link: str) -> int:
        """The last epoch that the arbiter is known to have opened for this site; 0 for none."""
        return await self._epoch_at(link_znodes.opened_path(link))

    async def store_complete(self, link: str, epoch: int) -> None:
        """Store that the active site has reported in this epoch that this standby protects it.
        NoNodeError: the link was deleted.
        """
        await self._store_beside(link_znodes.complete_path(link), str(epoch).encode())

    async def complete(self, link: str) -> int:
        """The last epoch in which the first copy is known to be complete here; 0 for none."""
        return await self._epoch_at(link_znodes.complete_path(link))

    async def _epoch_at(self, path: str) -> int:
        found = await self._zookeeper.get_or_none(path)
        if found is None:
            return 0
        if not found[0].isdigit():
            raise MalformedZnode(path, f"{found[0]!r} is not an epoch")
        return int(found[0])


async def awaits_truncation(record: LinkRecord, store: LinksStore) -> bool:
    """True while a failover still has to truncate the logs of the record's active site: clients may
    write there only after the run has stored the account.
    """
    return truncates_logs(record) and record.epoch not in await store.accounts.stored(record.name)
