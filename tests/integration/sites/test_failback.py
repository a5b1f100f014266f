"""A lost site returns with records that the promoted site never had: they go into quarantine, only
the missing records are copied, and a switchover back loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_access import link_status
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration

TAIL = 40
"""Records that only site a has."""


def answered(sites: EmbeddedSites, *arguments: str, code: int = 0) -> Any:
    done = sites.command(*arguments, "--output", "json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def final_account(sites: EmbeddedSites) -> dict[str, Any] | None:
    """The account of the last failover, after the old site has no records of its own."""
    account = answered(sites, "failovers", "show", "a-b")["accounts"][-1]
    return dict(account) if account["is_final"] else None


def quarantined(sites: EmbeddedSites) -> list[dict[str, Any]]:
    return list(answered(sites, "quarantine", "list", "--bootstrap-server", sites.bootstrap("a")))


async def with_a_tail_at_the_old_site(
    start_sites: SitesStarter, *arguments: str, before_the_loss: Callable[[EmbeddedSites], object] = lambda _: None
) -> EmbeddedSites:
    """Site b is active with records of its own; site a, back again, has `TAIL` others in their
    place.
    """
    sites = start_sites(*arguments)
    await create_topic(sites)
    produce(sites, 100)
    assert await equal_ends(sites) == {(TOPIC, 0): 100}
    sites.mirror.stop()
    produce(sites, TAIL)
    before_the_loss(sites)
    brokers = [sites.broker("a", index) for index in range(len(sites.environment.sites["a"].grpc))]
    for broker in brokers:
        broker.kill()
    done = sites.command("failover", "a-b", "--to", "b", "--old-site-is-down")
    assert done.returncode == 0, done.stdout + done.stderr
    produce(sites, 70, site="b")
    for broker in brokers:
        sites.restart(broker)
    sites.restart(sites.mirror)
    eventually_sync(lambda: link_status(sites)["mirror"] == "FAULTED")
    return sites


@pytest.mark.long
async def test_a_returning_site_of_three_brokers_follows_again_with_its_own_records_in_quarantine(
    start_sites: SitesStarter,
) -> None:
    sites = await with_a_tail_at_the_old_site(start_sites, "--brokers", "3")
    (planned,) = answered(sites, "links", "reinstate", "a-b", "--dry-run")
    assert (planned["topic"], planned["partition"], planned["outcome"]) == (TOPIC, 0, "planned")
    assert (planned["from_offset"], planned["end_offset"]) == (100, 100 + TAIL)
    assert quarantined(sites) == []
    (done,) = answered(sites, "links", "reinstate", "a-b", "--yes")
    assert done["outcome"] == "reinstated"
    assert await equal_ends(sites) == {(TOPIC, 0): 170}
    kept = [one for one in quarantined(sites) if one["kind"] == "reinstated"]
    assert [(one["topic"], one["first_offset"], one["end_offset"]) for one in kept] == [(TOPIC, 100, 100 + TAIL)]
    account = eventually_sync(lambda: final_account(sites))
    assert (account["found_records"], account["found_bytes"]) == (TAIL, kept[0]["size_bytes"])
    assert account["differences"] == []
    shown = sites.command("quarantine", "show", kept[0]["name"], "--bootstrap-server", sites.bootstrap("a"))
    assert shown.stdout.split() == [str(number) for number in range(TAIL)]
    beside = answered(sites, "reconcile", "--link", "a-b", "--beside-records")["beside_records"]["differences"]
    removed = [(one["name"], one["source"], one["target"]) for one in beside if one["kind"] == "quarantined records"]
    place, size = f"{TOPIC}-0 offsets 100 to {100 + TAIL - 1}", f"{kept[0]['size_bytes']} bytes"
    assert (place, size, None) in removed
    eventually_sync(lambda: link_status(sites)["protected_since_ms"] is not None)
    back = sites.command("switchover", "a-b", "--to", "a")
    assert back.returncode == 0, back.stdout + back.stderr
    produce(sites, 10)
    records = librdkafka_consume(sites.bootstrap("a"), TOPIC, 180, group="all")
    assert [record.offset for record in records] == list(range(180))
    assert [record.value for record in records[100:170]] == [f"{number}".encode() for number in range(70)]
    assert await equal_ends(sites) == {(TOPIC, 0): 180}
    for index in range(3):
        broker = sites.broker("a", index)
        broker.kill()  # each replica leads once
        again = librdkafka_consume(sites.bootstrap("a"), TOPIC, 180, group=f"without-{index}")
        assert [record.value for record in again] == [record.value for record in records]
        sites.restart(broker)
        await equal_ends(sites)
    sites.stop()


async def test_a_group_that_only_the_lost_site_knew_reads_the_active_sites_records_after_the_failback(
    start_sites: SitesStarter,
) -> None:
    """M3: its offset lies in records that only the lost site had."""
    end = 100 + TAIL

    def read_all(sites: EmbeddedSites) -> None:
        assert len(librdkafka_consume(sites.bootstrap("a"), TOPIC, end, group="night")) == end

    sites = await with_a_tail_at_the_old_site(start_sites, before_the_loss=read_all)
    answered(sites, "links", "reinstate", "a-b", "--yes")
    assert await equal_ends(sites) == {(TOPIC, 0): 170}
    eventually_sync(lambda: link_status(sites)["protected_since_ms"] is not None)
    back = sites.command("switchover", "a-b", "--to", "a")
    assert back.returncode == 0, back.stdout + back.stderr
    records = librdkafka_consume(sites.bootstrap("a"), TOPIC, 70, group="night")
    assert [(record.offset, record.value) for record in records] == [
        (100 + number, f"{number}".encode()) for number in range(70)
    ]
    sites.stop()


async def test_quarantined_records_are_shown_with_their_expiry_and_expire_after_an_alarm(
    start_sites: SitesStarter,
) -> None:
    retention = ("antipode.quarantine.retention.ms=20000", "log.retention.check.interval.ms=200")
    sites = await with_a_tail_at_the_old_site(
        start_sites, *(part for given in retention for part in ("--broker-config", given))
    )
    answered(sites, "links", "reinstate", "a-b", "--yes")

    def shown() -> str:
        return "".join(link_status(sites)["quarantines"])

    # Until the first look after it, which may come late on a busy machine, or after the expiry.
    eventually_sync(lambda: "the first, 0.cut.@" in shown() or "expired" in sites.broker("a").log_text())
    eventually_sync(lambda: 'event="quarantine entry expired"' in sites.broker("a").log_text())
    log = sites.broker("a").log_text()
    assert 0 <= log.index("quarantine entry expires soon") < log.index("quarantine entry expired")
    assert [one for one in quarantined(sites) if one["kind"] == "reinstated"] == []
    eventually_sync(lambda: shown() == "")
    found = answered(sites, "links", "check", "a-b", code=sites.command("links", "check", "a-b").returncode)
    (kept,) = [one for one in found["checks"] if one["check"] == "quarantine"]
    assert (kept["outcome"], kept["detail"]) == ("ok", "empty at both sites")
    sites.stop()
