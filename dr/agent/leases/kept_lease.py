"""The state that one agent keeps for the lease of one link, and the doors through which it acts."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct, field

from dr.agent.arbiter import Arbiter, KeptRecord
from dr.agent.core.lease import LinkLeaseMachine, VowTimes
from dr.agent.links_store import LinksStore
from dr.agent.site_cache import SiteCache
from dr.sites.channels import Channels
from runtime.clock import Clock
from wire.control.broker_pb2 import ConfirmLinkReply
from wire.control.broker_pb2_grpc import BrokerControlStub
from wire.control.cluster_pb2 import LinkRecord
from wire.znodes.arbiter_znodes import Holder

BROKER_TIMEOUT_S: Final = 1.0


class LeaseDoors(Struct, frozen=True, kw_only=True):
    """The parts of an agent that its leases need. `broker` is the control service of the own
    broker; `broker_address` finds its registration.
    """

    site: str
    arbiter: Arbiter
    cache: SiteCache
    store: LinksStore
    channels: Channels
    broker: BrokerControlStub
    broker_address: str
    clock: Clock

    def own_holder(self) -> Holder | None:
        """The own broker as a holder of permits; None while it is not registered at its site."""
        for node_id, (registration, _) in self.cache.facts.brokers.items():
            if registration.grpc_address == self.broker_address:
                return Holder(self.site, node_id)
        return None


class KeptLease(Struct):
    """One link: its machine, the arbiter's last record, and the state of the own broker's
    permit.
    """

    machine: LinkLeaseMachine
    arbiter: KeptRecord | None = None
    holder_version: int | None = None
    """The version of this broker's holder znode at the arbiter; None before it is registered there.
    """
    permit_epoch: int = 0
    permit_until_ms: float = 0.0
    permit_from: str = ""
    opened_epoch: int = 0
    """The highest epoch that this site is known to have opened; it is also stored beside the
    link.
    """
    has_vow: bool = False
    vows: VowTimes = field(default_factory=VowTimes)
    """The vows of this site, for brokers of the other one."""
    is_out_of_sync: bool = False
    """True if the arbiter has the mark that this broker acknowledges records that the standby may
    lack.
    """
    is_released: bool = False
    is_awaited: bool = False
    """True while a closed epoch waits to be opened, or the broker has not accepted a permit yet."""
    problem: str = ""
    reply: ConfirmLinkReply = field(default_factory=ConfirmLinkReply)
    """The broker's last answer to a permit."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    suspended: dict[Holder, tuple[int, float]] = field(default_factory=dict)
    """Holders of this site whose brokers are gone, each with the znode version that ended its
    renewals and the monotonic time at which that happened.
    """

    def is_open_for(self, record: LinkRecord) -> bool:
        """True if the arbiter's record, as last read, is open in the epoch of the link's record."""
        if self.arbiter is None:
            return False
        held = self.arbiter.record
        return held.is_open and (held.epoch, held.active_site) == (record.epoch, record.active_site)

    def left_ms(self, now_ms: float) -> float:
        """The remaining time (ms) of the permit; negative after its end."""
        return self.permit_until_ms - now_ms
