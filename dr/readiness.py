"""Asking both sites of a link what a failover now would lose; `core/readiness.py` compares."""

from __future__ import annotations

from collections.abc import Sequence

from dr.core.readiness import Readiness, readiness
from dr.links import describe_link, governing_record
from dr.observation import LinkObserver
from dr.site_client import SiteClient
from runtime.clock import Clock, SystemClock
from runtime.process import OperationalFailure
from wire.links import other_site


async def check_readiness(name: str, clients: Sequence[SiteClient], clock: Clock | None = None) -> Readiness:
    """What would be missing at the link's standby. OperationalFailure when nobody knows the link, or the standby's agents."""
    record = governing_record(await describe_link(name, clients))
    standby = other_site(record, record.active_site)
    by_name = {client.name: client for client in clients}
    if standby not in by_name:
        raise OperationalFailure(f"no agent address is known of {standby}, the standby of link {name}")
    used_clock = clock or SystemClock()
    observer = LinkObserver(name, target=by_name[standby], source=by_name.get(record.active_site), clock=used_clock)
    evidence = await observer.evidence(with_groups=True)
    if evidence.target is None and evidence.source is None:
        raise OperationalFailure(f"{evidence.target_problem}; {evidence.source_problem}")
    return readiness(evidence, now_ms=used_clock.now_ms())
