"""Claims of a translate link's slots at its target: fence the mirrors that have claimed any of them
before, and find the one that has claimed them since.
"""

from __future__ import annotations

from collections.abc import Callable

from mirror.link.ports import Unreachable
from mirror.translate.notes.core.claims import Claim, ClaimName, outlived, rivals_of, successor_of
from mirror.translate.notes.core.stored_map import claim_record, claim_tombstone
from mirror.translate.notes.offset_store import OffsetStore
from mirror.translate.transaction_coordinator import TransactionCoordinator
from runtime.chance import new_uuid
from runtime.clock import Clock
from runtime.logs import state_change_logger
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import READ_COMMITTED, READ_UNCOMMITTED

NO_TRANSACTIONS = ""
"""In the place of the transactional id: the claim of a mirror that writes without transactions."""

_state_change = state_change_logger()


async def fence_rivals(
    own: Claim, store: OffsetStore, coordinator_of: Callable[[str], TransactionCoordinator]
) -> list[Claim]:
    """Fence all mirrors that have claimed any of our slots. Returns the claims that are dead now,
    including ours of earlier epochs.
    """
    claims = await store.claims()
    if own.name not in claims:
        raise Unreachable(f"the claim of {own.name.transactional_id} is not in {store.topic} yet")
    rivals = rivals_of(own, claims.values())
    for transactional_id in sorted({claim.name.transactional_id for claim in rivals} - {NO_TRANSACTIONS}):
        await coordinator_of(transactional_id).fence()
        _state_change.info("fenced a transactional id with an overlapping claim", transactional_id=transactional_id)
    return [*rivals, *outlived(own, claims.values())]


async def successor_in(store: OffsetStore, own: Claim, *, since: int) -> Claim | None:
    """Another mirror's claim of slots that it does not share with `own`, noted at or after the
    offset `since` of the link's topic. Unreachable.
    """
    # Open transactions of other daemons must not hide their claims, so uncommitted records are read
    # as well. On a link that is not shared, an aborted claim has no owner.
    isolation_level = READ_UNCOMMITTED if own.is_shared else READ_COMMITTED
    later = await store.claims(first_offset=since, isolation_level=isolation_level)
    return successor_of(own, later.values())


async def end_transactions(client: KafkaClient, store: OffsetStore, *, clock: Clock, timeout_ms: int) -> None:
    """Abort the open transactions of others and fence their producers, for a mirror that writes
    without transactions. Unreachable.
    """
    claim = Claim(name=ClaimName(NO_TRANSACTIONS, -1, -1), mirror=new_uuid().hex, slots=None)
    await store.save([[claim_record(claim)]], now_ms=clock.now_ms())
    rivals = rivals_of(claim, (await store.claims()).values())
    for transactional_id in sorted({rival.name.transactional_id for rival in rivals}):
        await TransactionCoordinator(client, transactional_id, timeout_ms=timeout_ms).fence()
    await store.save([[claim_tombstone(rival) for rival in rivals]], now_ms=clock.now_ms())
    await store.settled()
