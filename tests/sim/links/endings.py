"""The conditions that two sites must meet after everything was healed: one active site that both
name, a link that protects it, equal logs, and every acknowledged record at its place or in an
account.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dr.sites.core.fencing import FIRST_EPOCH
from dr.sites.core.loss import LossAccount, PartitionLoss
from dr.sites.core.settlement import account_to_settle
from tests.sim.ledger import body_of
from tests.sim.links.ledger import Acknowledged, LinkLedger, Place, has_batch
from tests.sim.links.plan import LINK, SITES, other, site_of
from tests.sim.links.world_of_two import TwoSites
from tests.sim.world import World
from wire.batches.record_batch import iterate_headers
from wire.control.cluster_pb2 import LinkPhase
from wire.protocol.ids import UNKNOWN
from wire.znodes import arbiter_znodes, link_znodes

EPOCH_MAX = (1 << 31) - 1


def missing_for_protection(world: World, sites: TwoSites, ledger: LinkLedger) -> list[str]:
    """The conditions that are not met yet before the link protects its active site."""
    records = {site: ledger.record_at(site) for site in SITES}
    first = records["a"]
    if first is None or records["a"] != records["b"]:
        return [f"the sites have different records: {_shown(records)}"]
    if first.phase != LinkPhase.MIRRORING:
        return [f"{first.active_site} is fenced in epoch {first.epoch}"]
    missing = []
    found = world.ensembles[-1].tree.nodes.get(arbiter_znodes.record_path(LINK))
    held = None if found is None else arbiter_znodes.decode_record(LINK, found.value)
    if held is None or not held.is_open or (held.epoch, held.active_site) != (first.epoch, first.active_site):
        missing.append(f"the arbiter has {held} for epoch {first.epoch}")
    tree = world.ensembles[SITES.index(first.active_site)].tree
    stored = tree.nodes.get(link_znodes.protection_path(LINK))
    verdict = None if stored is None else link_znodes.decode_protection(LINK, stored.value)
    if verdict is None or verdict.epoch != first.epoch or verdict.reason:
        missing.append(f"not protected in epoch {first.epoch}: {'no verdict' if verdict is None else verdict.reason}")
    missing += [f"{node.host} is not running" for node in sites.nodes.values() if not node.is_running]
    return missing


def missing_for_failover(world: World, ledger: LinkLedger) -> list[str]:
    """The conditions that are not met yet before the standby knows that its first copy is complete
    (F16).
    """
    record = ledger.record_at("a")
    assert record is not None
    standby = other(record.active_site)
    found = world.ensembles[SITES.index(standby)].tree.nodes.get(link_znodes.complete_path(LINK))
    is_known = found is not None and int(found.value) == record.epoch
    return [] if is_known else [f"{standby} does not know that its first copy is complete"]


def missing_for_equality(world: World, ledger: LinkLedger, places: tuple[Place, ...]) -> list[str]:
    """The conditions that are not met yet before all logs are equal and the last account is
    final.
    """
    missing = []
    for place in places:
        logs = {node: disk.logs.get(place) for node, disk in ledger.disks.items()}  # type: ignore[call-overload]
        contents = {tuple(batch.content for batch in log.batches) if log is not None else None for log in logs.values()}
        if len(contents) > 1:
            ends = {node: None if log is None else log.end for node, log in logs.items()}
            missing.append(f"{place[0]}-{place[1]} has logs that end at {ends}")
    for site in SITES:
        record, kept = ledger.record_at(site), {account.epoch: account for account in accounts(world, site)}
        account = None if record is None else account_to_settle(kept, record)
        if account is not None and not account.is_final:
            missing.append(f"the account of epoch {account.epoch} is not final at {site}")
    return missing


def accounts(world: World, site: str) -> list[LossAccount]:
    """The accounts of failovers that a site keeps."""
    tree = world.ensembles[SITES.index(site)].tree
    parent = tree.nodes.get(link_znodes.failovers_path(LINK))
    if parent is None:
        return []
    paths = [link_znodes.failover_path(LINK, int(child)) for child in sorted(parent.children)]
    return [LossAccount.from_json(tree.nodes[path].value.decode()) for path in paths]


def unsound_endings(world: World, ledger: LinkLedger, sites: TwoSites) -> Iterator[tuple[str, str]]:
    """Invariant and story for each that does not hold at the end."""
    by_epoch = {account.epoch: account for site in SITES for account in accounts(world, site)}
    quarantined = list(_quarantined(sites))
    for one in ledger.acknowledged:
        if all(has_batch(log, one.base_offset, one.body) for site in SITES for log in ledger.logs(one.place, site)):
            continue
        yield from _unaccounted(one, quarantined, by_epoch)
    for account in by_epoch.values():
        yield from _other_histories(account, by_epoch, ledger)
        if account.is_final:
            until = min((epoch for epoch in by_epoch if epoch > account.epoch), default=EPOCH_MAX)
            yield from _contradictions(account, quarantined, until=until)


def lost(ledger: LinkLedger) -> int:
    """The number of acknowledged batches that are missing at their offset."""
    return sum(
        not all(has_batch(log, one.base_offset, one.body) for site in SITES for log in ledger.logs(one.place, site))
        for one in ledger.acknowledged
    )


def _unaccounted(
    one: Acknowledged, quarantined: list[dict[str, Any]], by_epoch: dict[int, LossAccount]
) -> Iterator[tuple[str, str]]:
    place = f"{one.place[0]}-{one.place[1]} at offset {one.base_offset}"
    entries = [
        entry
        for entry in quarantined
        if (entry["topic"], entry["partition"]) == one.place and (one.base_offset, one.body) in entry["batches"]
    ]
    if not entries:
        story = f"{place}: {one.body!r}, acknowledged at {one.site} at {one.at_s:.3f} s, is neither in all logs nor in quarantine"
        yield "acknowledged-or-accounted", story
        return
    for entry in entries:
        # the last failover before: each fence that was given back since is an epoch of its own
        before = max((epoch for epoch in by_epoch if epoch <= entry["link_epoch"]), default=0)
        loss = _loss(by_epoch.get(before), one.place)
        if loss is not None and loss.kept_below <= one.base_offset:
            return
    epochs = [entry["link_epoch"] for entry in entries]
    yield (
        "acknowledged-or-accounted",
        f"{place}: it is in the quarantine of epochs {epochs} and in none of their accounts",
    )


def _loss(account: LossAccount | None, place: Place) -> PartitionLoss | None:
    if account is None:
        return None
    return next((item for item in account.partitions if (item.topic, item.partition) == place), None)


def _other_histories(
    account: LossAccount, by_epoch: dict[int, LossAccount], ledger: LinkLedger
) -> Iterator[tuple[str, str]]:
    """The promoted site wrote from the offset on below which, by the account, it has kept all."""
    later = [one for epoch, one in by_epoch.items() if epoch > account.epoch]
    for item in account.partitions:
        place = (item.topic, item.partition)
        kept_later = [loss.kept_below for one in later if (loss := _loss(one, place)) is not None]
        if item.kept_below == UNKNOWN:
            continue  # the account says that it does not know where this history begins
        if item.returning_records or any(kept_below <= item.kept_below for kept_below in kept_later):
            continue  # a later failover has left this history
        for log in ledger.logs(place, account.to_site):
            above = (batch.base_offset for batch in log.batches if batch.epoch >= account.leader_epoch_floor)
            begins = min(above, default=item.kept_below)
            if begins != item.kept_below:
                place_name = f"{item.topic}-{item.partition}"
                story = f"{place_name}: epoch {account.epoch} begins at offset {begins}, and not at {item.kept_below} as accounted"
                yield "account-equals-quarantine", story


def _contradictions(
    account: LossAccount, quarantined: list[dict[str, Any]], *, until: int
) -> Iterator[tuple[str, str]]:
    """The final account has what the old site's quarantine holds of the epochs before `until`."""
    for item in account.partitions:
        ends = [
            (entry["first_offset"], entry["end_offset"])
            for entry in quarantined
            if (entry["topic"], entry["partition"]) == (item.topic, item.partition)
            and account.epoch <= entry["link_epoch"] < until
            and site_of(entry["node"]) == account.from_site
        ]
        held = max((end - first for first, end in ends), default=0)
        if item.found_records != held:
            place = f"{item.topic}-{item.partition} in epoch {account.epoch}"
            yield "account-equals-quarantine", f"{place}: {item.found_records} by the account, {held} in quarantine"
        if item.difference:
            yield "account-equals-quarantine", f"epoch {account.epoch}: {item.difference}"


def _quarantined(sites: TwoSites) -> Iterator[dict[str, Any]]:
    """All entries of all brokers, with their batches."""
    for node in sites.nodes.values():
        files = node.disk.files.files
        for path, content in sorted(files.items()):
            if "/0.cut.@" not in path or not path.endswith(".json"):
                continue
            entry = json.loads(bytes(content))
            batches = bytes(files[path.removesuffix(".json") + ".log"])
            entry["batches"] = {
                (header.base_offset, body_of(batches[position : position + header.size_bytes]))
                for position, header in iterate_headers(batches)
            }
            yield {**entry, "node": node.node_id}


def _shown(records: dict[str, Any]) -> dict[str, Any]:
    return {
        site: None if record is None else (record.epoch, record.active_site, record.phase, record.revision)
        for site, record in records.items()
    }


def switchover_is_free(world: World, epoch: int) -> str:
    """A sentence about the records that the planned move to the epoch lost; empty if none."""
    for site in SITES:
        for account in accounts(world, site):
            if account.epoch == epoch and epoch != FIRST_EPOCH and account.known_lost_records + account.found_records:
                return f"epoch {epoch} loses {account.known_lost_records} records, the old site had {account.found_records} alone"
    return ""
