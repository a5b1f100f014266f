"""Several sites with the records of their links, each in its own store, and steps of their agents
(`dr/agent/core/following.py`) in any order.
"""

from __future__ import annotations

from collections.abc import Iterable

from dr.agent.core.following import Change, SiteAnswer, Step, changes_due, links_to_report, sites_to_ask
from dr.sites.core.fencing import raised
from dr.sites.core.record_changes import changed
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.rules.links import supersedes


def link(name: str, source: str, target: str, *, whitelist: str = ".*", sync: str = "") -> LinkRecord:
    return LinkRecord(
        name=name,
        source_site=source,
        target_site=target,
        mode="exact",
        epoch=1,
        active_site=source,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=[whitelist],
        group_whitelist=[".*"],
        is_blacklist_complete=True,
        is_routed=True,
        sync_policy=sync,
        sites={site: LinkSite(bootstrap_servers=f"{site}:9093", agents=[f"{site}:9391"]) for site in (source, target)},
    )


class Sites:
    """The records of several sites, each in its own store, and which sites are down."""

    def __init__(self, *links: LinkRecord) -> None:
        names = sorted({site for one in links for site in (one.source_site, one.target_site)})
        self.stores = {
            name: {one.name: changed(one) for one in links if name in (one.source_site, one.target_site)}
            for name in names
        }
        self.down: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.now_ms = 0

    def reaches(self, one: str, other: str) -> bool:
        return not {one, other} & self.down and frozenset((one, other)) not in self.cut

    def due(self, site: str) -> list[Change]:
        """The changes that the agents of the site would make now."""
        links = self.stores[site]
        answers = {
            other: SiteAnswer(
                is_answering=True,
                links={one.name: one for one in links_to_report(self.stores[other].values(), site)},
            )
            if self.reaches(site, other)
            else SiteAnswer(is_answering=False)
            for other in sites_to_ask(links.values(), site)
        }
        self._adopt(site, answers.values())
        self.now_ms += 1
        return changes_due(site, links, answers, now_ms=self.now_ms)

    def make(self, site: str, change: Change) -> None:
        """Store one change as `LinksStore` does."""
        links, record = self.stores[site], change.record
        match change.step:
            case Step.STORE if links.get(record.name) == change.instead_of:
                links[record.name] = record
            case Step.JOIN if record.name not in links and change.beside in links:
                if {record.source_site, record.target_site} <= links[change.beside].sites.keys():
                    links[record.name] = record
            case Step.LEAVE if record.name in links and links[record.name].epoch == record.epoch:
                del links[record.name]

    def settle(self, order: Iterable[str] = "") -> None:
        """Let the agents of all sites that are up make their changes until none is left."""
        order = list(order) or sorted(self.stores)
        for _ in range(20):
            has_changed = False
            for site in order:
                if site not in self.down:
                    before = dict(self.stores[site])
                    for change in self.due(site):
                        self.make(site, change)
                    has_changed |= before != self.stores[site]
            if not has_changed:
                return
        raise AssertionError("the sites go on changing their links")

    def promote(self, name: str, site: str) -> None:
        """A failover stores the next epoch at the promoted site, then at the other one if it
        answers.
        """
        record = self.stores[site][name]
        highest = max(one.leader_epoch_floor for one in self.stores[site].values())
        self.now_ms += 1
        self.stores[site][name] = raised(record, to_site=site, highest_leader_epoch=highest, now_ms=self.now_ms)

    def active(self, name: str) -> dict[str, str]:
        """The active site of a link at each site that has it."""
        return {site: links[name].active_site for site, links in self.stores.items() if name in links}

    def writers(self) -> set[str]:
        """The sites that may take writes: active under all their links."""
        return {
            site
            for site, links in self.stores.items()
            if links and all(one.active_site == site and one.phase == LinkPhase.MIRRORING for one in links.values())
        }

    def _adopt(self, site: str, answers: Iterable[SiteAnswer]) -> None:
        # the peer watch adopts a newer record of a link of which this site is an end
        for answer in answers:
            for record in answer.links.values():
                stored = self.stores[site].get(record.name)
                is_end = site in (record.source_site, record.target_site)
                if stored is not None and is_end and supersedes(record, stored):
                    self.stores[site][record.name] = record
