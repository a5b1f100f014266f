"""A site reads the peer's record of a link in which both sites claim to be active."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cli.administration.status import problems
from dr.agent.metrics import SiteAgentMetrics
from dr.agent.peer_watch import PeerWatch
from dr.proof.core.verification import LinkVerification
from tests.support.clock import ManualClock
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, SiteView


def record(*, active: str, epoch: int = 2) -> LinkRecord:
    return LinkRecord(
        name="a-b", source_site="a", target_site="b", epoch=epoch, active_site=active, phase=LinkPhase.MIRRORING
    )


class Adopting:
    """A store that takes every record."""

    async def adopt(self, given: LinkRecord) -> LinkRecord:
        """Stores the record."""
        return given


async def level(_: LinkRecord) -> None:
    """Finds nothing to restore."""


async def unchanged(*_: object) -> bool:
    """No link follows another site."""
    return False


def shown(registry: CollectorRegistry, **given: Callable[[], Any]) -> None:
    """Registers the metrics of an agent that has only the given values."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("contested", "protection", "verification", "leases", "waiting", "failovers", "rehearsals", "silences"), dict
    )
    SiteAgentMetrics(registry, **{**nothing, **given})


def watch_at_a() -> PeerWatch:
    parts: Any = SimpleNamespace(broker_control=lambda _: None)
    store: Any = Adopting()
    return PeerWatch(
        site="a",
        cache=SimpleNamespace(),  # type: ignore[arg-type]
        store=store,
        channels=parts,
        broker_address="",
        clock=ManualClock(),
        on_level=level,
        leases=parts,
        on_answers=unchanged,
    )


@pytest.mark.parametrize("agreed", [record(active="a"), record(active="b", epoch=3)], ids=["gives way", "next epoch"])
async def test_two_active_sites_in_one_epoch_are_known_until_the_sites_agree(agreed: LinkRecord) -> None:
    watch = watch_at_a()
    own = record(active="a")
    watch.note_confirmed(own)
    await watch._compare(own, own)
    assert watch.contested == {}
    await watch._compare(own, record(active="b"))
    assert watch.contested == {"a-b": "b"}
    await watch._compare(own, agreed)
    assert watch.contested == {}


async def test_a_site_that_a_failover_truncates_is_confirmed_after_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old site answers with the same epoch long before the account is written."""
    watch, confirmed = watch_at_a(), list[int]()

    async def confirm(own: LinkRecord) -> None:
        confirmed.append(own.epoch)

    accounts: dict[int, str] = {}

    async def failovers(_: str) -> dict[int, str]:
        return accounts

    monkeypatch.setattr(watch, "_confirm", confirm)
    monkeypatch.setattr(watch._store, "accounts", SimpleNamespace(stored=failovers), raising=False)
    own = record(active="a")
    own.kept_before_ms = 7
    await watch._compare(own, own)
    assert confirmed == []
    accounts[own.epoch] = "{}"
    await watch._compare(own, own)
    assert confirmed == [own.epoch]


@pytest.mark.parametrize("is_requested", [True, False])
async def test_a_peer_that_agrees_after_the_arbiter_lost_its_data_lets_the_epoch_open_again(is_requested: bool) -> None:
    """The permit of before is valid for a moment, and does not show that the peer agrees now."""
    watch, requested = watch_at_a(), list[int]()
    leases: Any = SimpleNamespace(
        has_permit=lambda _: True,
        is_requested=lambda _: is_requested,
        request_open=lambda own: requested.append(own.epoch),
    )
    watch._leases = leases
    own = record(active="a")
    own.lease_ms = 1_000
    await watch._compare(own, own)
    assert requested == ([] if is_requested else [2])


def test_a_link_that_the_peer_lacks_is_unknown_to_it_while_it_answers() -> None:
    watch, own = watch_at_a(), record(active="a")
    assert not watch.is_unknown_to_peer(own), "a peer that has not answered may have the link"
    peer = watch.peer("b")
    peer.is_reachable = True
    assert watch.is_unknown_to_peer(own)
    peer.view = SiteView(links=[record(active="b", epoch=1)])
    assert not watch.is_unknown_to_peer(own)


def test_a_contested_link_is_a_figure() -> None:
    registry = CollectorRegistry()
    shown(registry, contested=lambda: {"a-b": True, "a-c": False})
    figures = [registry.get_sample_value("antipode_site_contested_link", {"link": link}) for link in ("a-b", "a-c")]
    assert figures == [1, 0]


def test_a_verdict_on_protection_and_its_age_are_figures() -> None:
    registry = CollectorRegistry()
    verdicts = {"a-b": (True, 1_500.0), "a-c": (False, 0.0)}
    shown(registry, protection=lambda: verdicts)
    found = {
        link: tuple(
            registry.get_sample_value(f"antipode_site_protected_link{suffix}", {"link": link})
            for suffix in ("", "_age_seconds")
        )
        for link in ("a-b", "a-c", "a-d")
    }
    assert found == {"a-b": (1, 1.5), "a-c": (0, 0), "a-d": (None, None)}


def test_the_proof_of_a_link_and_of_its_partitions_are_figures() -> None:
    registry = CollectorRegistry()
    state = LinkVerification(epoch=1, verified_until_ms=2_500, differences=3)
    shown(registry, verification=lambda: {"a-b": (state, {("t", 4): 77})})
    link = {"link": "a-b"}
    assert registry.get_sample_value("antipode_site_verified_until_timestamp_seconds", link) == 2.5
    assert registry.get_sample_value("antipode_site_differences", link) == 3
    of_partition = {**link, "topic": "t", "partition": "4"}
    assert registry.get_sample_value("antipode_site_verified_until_offset", of_partition) == 77


LINK = {
    "name": "a-b",
    "source": "a",
    "target": "b",
    "active_site": "a",
    "epoch": 2,
    "lag_records": 0,
    "mirror": "MIRRORING",
    "mirror_report_age_ms": 100,
    "not_protected_because": "",
    "differences": None,
    "first_difference": "",
    "not_proven_because": "",
    "not_covered_by_proof": "",
    "is_contested": False,
    "differing": [],
    "deposed": [],
    "lease_problems": [],
    "quarantine_problems": [],
}


@pytest.mark.parametrize(
    ("mirror", "is_contested", "said"),
    [
        ("MIRRORING", False, ""),
        ("not known", False, ""),
        ("silent", False, "the mirror is silent"),
        ("MIRRORING", True, "both sites report that they are active in epoch 2"),
    ],
)
def test_status_names_a_mirror_that_is_not_there_and_a_link_with_two_active_sites(
    mirror: str, said: str, *, is_contested: bool
) -> None:
    reported = {"mirror": mirror, "mirror_reason": "", "is_contested": is_contested, "mirror_problems": []}
    found = problems({}, [{**LINK, **reported}])
    assert len(found) == bool(said)
    assert said in "".join(found)


def test_status_names_a_daemon_of_the_mirror_that_does_not_carry_offsets() -> None:
    said = "mirror daemon m2:9391 does not carry offsets: billing: refused (said 0.1 s ago)"
    found = problems({}, [{**LINK, "mirror_problems": [said]}])
    assert found == [f"link a-b: {said}"]
