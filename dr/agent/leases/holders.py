"""Brokers that may hold permits of a link, as the arbiter knows them: registered with their
presence, and taken away once their last permit has run out.
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
    """Keep the own broker present at the arbiter, and look whether brokers of the peers are."""
    holder, arbiter = doors.own_holder(), doors.arbiter
    if holder is not None and arbiter.is_reachable:
        # the shortest lease: presence must never end before a permit does
        timeout_ms = min(record.lease_ms for record in leased)
        with suppress(ArbiterSilent, KazooException):
            await arbiter.keep_presence(doors.site, holder.node_id, timeout_ms=timeout_ms)
            # the arbiter notes since when a peer is absent: a wait for its permits counts from then
            for peer in {other_site(record, doors.site) for record in leased}:
                await arbiter.present(peer, timeout_ms=timeout_ms)


async def register(doors: LeaseDoors, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
    """Register the own broker as a holder of permits."""
    # presence first: a holder without a presence node would count as gone
    await doors.arbiter.keep_presence(doors.site, holder.node_id, timeout_ms=record.lease_ms)
    registered = await doors.arbiter.register_holder(record.name, holder, timeout_ms=record.lease_ms)
    kept.holder_version, kept.is_out_of_sync = registered


async def sweep(doors: LeaseDoors, kept: KeptLease, record: LinkRecord) -> None:
    """Take brokers of this site that are gone from the holders, so that the next failover need
    not wait for them: their renewals end first, and a lease later so do their permits.
    """
    facts, arbiter = doors.cache.facts, doors.arbiter
    # one broker of a site sweeps
    if not facts.has_lowest_node_id(doors.broker_address):
        return
    holders = await arbiter.holders(record.name, timeout_ms=record.lease_ms)
    marked = await arbiter.out_of_sync(record.name, timeout_ms=record.lease_ms)
    absent = [one for one in holders if one.site == doors.site and one.node_id not in facts.brokers]
    # a mark stays until its broker is back: the standby may lack what that broker acknowledged
    gone = [one for one in absent if one not in marked]
    kept.suspended = {one: known for one, known in kept.suspended.items() if one in gone}
    for one in gone:
        with suppress(ArbiterChanged):
            if one not in kept.suspended:
                # its renewals end here; its last permit ends a lease later
                version = await arbiter.suspend_holder(record.name, one, timeout_ms=record.lease_ms)
                kept.suspended[one] = version, doors.clock.monotonic_ms()
                continue
            version, since_ms = kept.suspended[one]
            if doors.clock.monotonic_ms() >= run_out_at_ms(closed_at_ms=since_ms, wait_ms=record.lease_ms):
                # by its version: a broker that came back meanwhile has registered anew
                await arbiter.release_holder(record.name, one, timeout_ms=record.lease_ms, version=version)
