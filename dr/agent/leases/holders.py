"""The brokers that may hold permits of a link, as registered at the arbiter. A broker stays
registered until its last permit has run out.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kazoo.exceptions import KazooException

from dr.agent.arbiter import ArbiterChanged, ArbiterSilent
from dr.agent.core.lease import run_out_at_ms
from dr.agent.leases.kept_lease import KeptLease, LeaseDoors
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import other_site
from wire.znodes.arbiter_znodes import Holder


async def show_presence(doors: LeaseDoors, leased: Iterable[LinkRecord]) -> None:
    """Keep the own broker present at the arbiter, and watch whether brokers of the peers are."""
    holder, arbiter = doors.own_holder(), doors.arbiter
    if holder is not None and arbiter.is_reachable:
        # The deadline of these calls is the shortest lease: a later answer would come after a
        # permit has ended.
        timeout_ms = min(record.lease_ms for record in leased)
        with suppress(ArbiterSilent, KazooException):
            await arbiter.keep_presence(doors.site, holder.node_id, timeout_ms=timeout_ms)
            # the arbiter records the time since which a peer is absent; the wait for its permits
            # begins at that time
            for peer in {other_site(record, doors.site) for record in leased}:
                await arbiter.present(peer, timeout_ms=timeout_ms)


async def register(doors: LeaseDoors, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
    """Register the own broker as a holder of permits."""
    # Presence comes first, because `sweep` removes a holder without a presence node.
    await doors.arbiter.keep_presence(doors.site, holder.node_id, timeout_ms=record.lease_ms)
    registered = await doors.arbiter.register_holder(record.name, holder, timeout_ms=record.lease_ms)
    kept.holder_version, kept.is_out_of_sync = registered


async def sweep(doors: LeaseDoors, kept: KeptLease, record: LinkRecord) -> None:
    """Remove holders of this site whose brokers are gone, so that the next failover need not wait
    for their permits. Their renewals are stopped first; one lease later their permits have
    ended.
    """
    facts, arbiter = doors.cache.facts, doors.arbiter
    # Only one broker of a site sweeps.
    if not facts.has_lowest_node_id(doors.broker_address):
        return
    holders = await arbiter.holders(record.name, timeout_ms=record.lease_ms)
    marked = await arbiter.out_of_sync(record.name, timeout_ms=record.lease_ms)
    absent = [one for one in holders if one.site == doors.site and one.node_id not in facts.brokers]
    # A marked holder stays until its broker is back: the standby may lack records that the broker
    # acknowledged.
    gone = [one for one in absent if one not in marked]
    kept.suspended = {one: known for one, known in kept.suspended.items() if one in gone}
    for one in gone:
        with suppress(ArbiterChanged):
            if one not in kept.suspended:
                # From here on its renewals fail; its last permit ends one lease later.
                version = await arbiter.suspend_holder(record.name, one, timeout_ms=record.lease_ms)
                kept.suspended[one] = version, doors.clock.monotonic_ms()
                continue
            version, since_ms = kept.suspended[one]
            if doors.clock.monotonic_ms() >= run_out_at_ms(closed_at_ms=since_ms, wait_ms=record.lease_ms):
                # The release names the version: a broker that came back meanwhile has registered
                # again and must stay.
                await arbiter.release_holder(record.name, one, timeout_ms=record.lease_ms, version=version)
