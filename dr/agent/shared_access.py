"""The access rules that both sites of a link had at the end of the mirror's last round, stored
beside the link at its standby. By them the mirror knows a rule that the active site has removed
from one that only the standby has had (`mirror/topics/access_sync.py`).

After the link's direction has changed, the rules that both sites have had are stored at the site
that was the standby before: the new standby's agent asks the active site, until the mirror has
stored its first complete round in the new epoch.
"""

from __future__ import annotations

import grpc
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from dr.agent.links_store import LinkConflict, LinksStore
from dr.sites.channels import Channels
from dr.sites.site_client import SiteClient, SiteRefused
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CheckNode, CreateNode, SetNode
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import GetSharedAccessReply, SharedAccess
from wire.protocol.ids import UNKNOWN
from wire.znodes import link_znodes
from wire.znodes.layout import link_path

_WITHOUT_ANY = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND})
"""Errors of a site that stores no such rules: it runs an earlier release, or does not have the
link.
"""


class OtherEpoch(Exception):
    """This agent knows another epoch of the link than the asker: one of them lags."""


class SharedAccessStore:
    """The stored rules of one site's links."""

    def __init__(self, site: str, store: LinksStore, zookeeper: ZooKeeper, channels: Channels) -> None:
        self._site = site
        self._store = store
        self._zookeeper = zookeeper
        self._channels = channels

    async def newest(self, link: str, *, epoch: int) -> GetSharedAccessReply:
        """The rules of the latest epoch of both sites, and the version of what is stored here.
        Raises LinkUnknown, SiteUnreachable; OtherEpoch if the link is not at `epoch` here (0: any).
        """
        record, _version = await self._store.get(link)
        # ZooKeeper's servers may lag. A server that has the epoch also has all rules that were
        # stored before it, because each of them was stored with a check of the link's record.
        if epoch and record.epoch != epoch:
            raise OtherEpoch(
                f"link {link!r} is at epoch {record.epoch} at this agent of site {self._site}, not {epoch}"
            )
        own = await self._stored(link)
        if record.active_site == self._site or own.shared.epoch >= record.epoch:
            return own
        theirs = await self._at_the_active_site(record)
        return own if theirs.epoch <= own.shared.epoch else GetSharedAccessReply(shared=theirs, version=own.version)

    async def replace(self, link: str, shared: SharedAccess, *, version: int) -> int:
        """Store the rules in place of those of `version`; returns the new version. Raises
        LinkUnknown; LinkConflict if the link has another epoch, or another version is stored.
        """
        record, link_version = await self._store.get(link)
        if record.epoch != shared.epoch:
            raise LinkConflict(f"link {link!r} is at epoch {record.epoch}, not {shared.epoch}", record)
        path, payload = link_znodes.shared_access_path(link), link_znodes.encode(shared)
        is_new = version == UNKNOWN
        step = CreateNode(path=path, value=payload) if is_new else SetNode(path=path, value=payload, version=version)
        try:
            await self._zookeeper.transaction([CheckNode(path=link_path(link), version=link_version), step])
        except (BadVersionError, NodeExistsError, NoNodeError):
            message = f"the access rules of link {link!r} are not those of version {version}, or the link has changed"
            raise LinkConflict(message, record) from None
        return 0 if is_new else version + 1

    async def _stored(self, link: str) -> GetSharedAccessReply:
        found = await self._zookeeper.get_or_none(link_znodes.shared_access_path(link))
        if found is None:
            return GetSharedAccessReply(version=UNKNOWN)
        payload, stat = found
        return GetSharedAccessReply(shared=link_znodes.decode_shared_access(link, payload), version=stat.version)

    async def _at_the_active_site(self, record: LinkRecord) -> SharedAccess:
        agents = list(record.sites[record.active_site].agents)
        try:
            return await SiteClient(record.active_site, agents, self._channels).shared_access(
                record.name, epoch=record.epoch
            )
        except SiteRefused as refusal:
            if refusal.code in _WITHOUT_ANY:
                return SharedAccess()
            raise
