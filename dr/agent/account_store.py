"""Accounts of failovers in a site's ZooKeeper, below the record of their link, changed by
compare-and-set only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from dr.agent.site_cache import DISCONNECTED
from dr.sites.core.loss import LossAccount
from runtime.retries import jittered_backoff
from runtime.zookeeper.client import ZooKeeper
from wire.znodes import layout as znodes
from wire.znodes import link_znodes

WRITE_BUDGET_MS = 5_000
"""Time (ms) in which a change is repeated while ZooKeeper does not answer, or while other processes
change the same znode.
"""


class LinkUnknown(LookupError):
    """This site stores no link of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"this site has no link {name!r}")


def _is_final(document: str) -> bool:
    try:
        return LossAccount.from_json(document).is_final
    except (ValueError, TypeError, KeyError):
        return False  # an account that cannot be read may be replaced


class AccountStore:
    """The accounts of all links of one site."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def record(self, link: str, *, epoch: int, document: str) -> None:
        """Store or replace the account of the failover that led to `epoch`. A final account is
        never replaced: the operator's run may bring the other site its own, earlier version. Raises
        LinkUnknown.
        """
        path, payload = link_znodes.failover_path(link, epoch), link_znodes.encode_account(document)
        async for attempt in jittered_backoff(
            retry_on=(*DISCONNECTED, NoNodeError, NodeExistsError, BadVersionError),
            initial_ms=10,
            budget_ms=WRITE_BUDGET_MS,
        ):
            with attempt:
                await self._check_link(link)
                kept = await self._zookeeper.get_or_none(path)
                if kept is not None and not self._is_to_replace(link, epoch, kept[0], document):
                    break
                try:
                    if kept is None:
                        await self._zookeeper.ensure_path(link_znodes.failovers_path(link))
                        await self._zookeeper.create(path, payload)
                    else:
                        await self._zookeeper.set(path, payload, version=kept[1].version)
                except (NodeExistsError, BadVersionError):
                    stored = await self._zookeeper.get_or_none(path)
                    if stored is None or self._is_to_replace(link, epoch, stored[0], document):
                        raise

    @staticmethod
    def _is_to_replace(link: str, epoch: int, kept: bytes, document: str) -> bool:
        """True if the stored account is another one that this one may replace."""
        stored = link_znodes.decode_account(link, epoch, kept)
        return stored != document and (_is_final(document) or not _is_final(stored))

    async def stored(self, link: str) -> dict[int, str]:
        """Accounts by epoch, oldest first."""
        accounts = await self._accounts_of(link, await self._account_epochs(link))
        return {epoch: account for epoch, (_, account) in accounts.items()}

    async def changed(self, link: str, known_versions: Mapping[int, int]) -> tuple[dict[int, int], dict[int, str]]:
        """The versions of all accounts by epoch, oldest first, and the accounts that do not have
        the known version. ZooKeeper sends no account that has it.
        """
        epochs = await self._account_epochs(link)
        known = [epoch for epoch in epochs if epoch in known_versions]
        stats = await asyncio.gather(*(self._zookeeper.exists(link_znodes.failover_path(link, one)) for one in known))
        unchanged = {
            epoch: stat.mzxid
            for epoch, stat in zip(known, stats, strict=True)
            if stat is not None and stat.mzxid == known_versions[epoch]
        }
        changed = await self._accounts_of(link, [epoch for epoch in epochs if epoch not in unchanged])
        versions = unchanged | {epoch: version for epoch, (version, _) in changed.items()}
        return dict(sorted(versions.items())), {epoch: account for epoch, (_, account) in changed.items()}

    async def _account_epochs(self, link: str) -> list[int]:
        try:
            return sorted(int(child) for child in await self._zookeeper.children(link_znodes.failovers_path(link)))
        except NoNodeError:
            return []

    async def _accounts_of(self, link: str, epochs: Sequence[int]) -> dict[int, tuple[int, str]]:
        """The stored accounts of these epochs, each with its version."""
        paths = [link_znodes.failover_path(link, epoch) for epoch in epochs]
        stored = await asyncio.gather(*map(self._zookeeper.get_or_none, paths))
        return {
            epoch: (one[1].mzxid, link_znodes.decode_account(link, epoch, one[0]))
            for epoch, one in zip(epochs, stored, strict=True)
            if one is not None
        }

    async def _check_link(self, name: str) -> None:
        if await self._zookeeper.get_or_none(znodes.link_path(name)) is None:
            raise LinkUnknown(name)
