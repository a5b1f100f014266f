"""Transactional ids in a failover: the producers of the source that the target does not know.

A promoted site fences each producer that it does not know under a known transactional id, which
ends most clients. So a drain ends only when the mirror has reported all of them. Pure.
"""

from __future__ import annotations

from dr.sites.core.evidence import SiteGroups, TransactionalProducer

NAMED_MAX = 3


def producers_lacking(source: SiteGroups, target: SiteGroups) -> str:
    """Describe the producers that the target lacks; empty if it lacks none, or if a site does not
    report its producers.

    Under the fence an epoch grows only by aborts, and the target accepts a higher one as the epoch
    of the current producer.
    """
    if source.producers is None or target.producers is None:
        return ""
    here = target.producers
    lacking = sorted(
        name
        for name, producer in source.producers.items()
        if not producer.is_carried and not _is_known(producer, here.get(name))
    )
    if not lacking:
        return ""
    return f"{len(lacking)} transactional ids are not here yet ({', '.join(lacking[:NAMED_MAX])})"


def _is_known(producer: TransactionalProducer, here: TransactionalProducer | None) -> bool:
    return (
        here is not None
        and here.is_carried
        and here.producer_id == producer.producer_id
        and here.producer_epoch >= producer.producer_epoch
    )
