"""Two sites that change places again and again under one load that goes on all the time.

Promised: on a sync link, the loss of the active site with kill -9 at any moment and a failover lose
no record that was acknowledged with acks=all, however often it happens; after planned moves there
and back both sites are equal byte for byte, and groups of both protocols have read each record
once. Each record is there once, in order, at the offset that was acknowledged.

`make proof-failover` runs this module, with a line for each loss and move and a report at the end.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.group_members import GroupMember
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.eventually import WITHIN_MS, eventually_sync
from tests.support.pairs.site_comparison import caught_up, site_client
from wire.client.raw_client import NewTopic

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(14_400)]

TOPIC = "orders"
PARTITIONS = 4
KILLS = 100
MOVES_THERE_AND_BACK = 10
PROTOCOLS = ("classic", "consumer")
MEMBERS = 2
BETWEEN_MAX = 300
"""Records that are acknowledged, at most, between a site's return and its loss."""
RECORDS_PER_SECOND = 200
MESSAGE_TIMEOUT_MS = 600_000
"""A producer does not give up a record while a round lasts."""


@pytest.fixture
def start_sites(tmp_path: Path) -> Iterator[SitesStarter]:
    starter = SitesStarter(tmp_path)
    try:
        yield starter
    finally:
        starter.end_all()


async def started_load(sites: EmbeddedSites, *, rounds: int) -> AcknowledgedLoad:
    """A load that knows the brokers of both sites and does not end before so many rounds."""
    async with site_client(sites.bootstrap("a")) as client:
        (outcome,) = await client.create_topics([NewTopic(name=TOPIC, partition_count=PARTITIONS)])
        assert not outcome.error_code, outcome
    both = f"{sites.bootstrap('a')},{sites.bootstrap('b')}"
    settings = {"message.timeout.ms": MESSAGE_TIMEOUT_MS}
    return AcknowledgedLoad(
        both,
        TOPIC,
        PARTITIONS,
        records_per_second=RECORDS_PER_SECOND,
        records_max=rounds * RECORDS_PER_SECOND * WITHIN_MS // 1000,
        settings=settings,
    )


def succeeded(sites: EmbeddedSites, *arguments: str) -> str:
    ended = sites.command(*arguments)
    assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
    return ended.stdout


def is_protected(sites: EmbeddedSites) -> bool:
    """The standby has everything, and the link's sync policy is in force."""
    (link,) = json.loads(sites.command("status", "--output", "json").stdout)["links"]
    return link["protected_since_ms"] is not None and not link["suspended_sync"] and link["mirror"] == "MIRRORING"


class Groups:
    """A group of each protocol, whose members a thread polls for as long as the block runs. They
    commit nothing in between, so a group that begins anew reads everything again.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._members = {
            protocol: [GroupMember(bootstrap_servers, TOPIC, protocol, protocol=protocol) for _ in range(MEMBERS)]
            for protocol in PROTOCOLS
        }
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="groups")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for member in self._all():
            member.close()

    def times_read(self) -> dict[str, Counter[bytes]]:
        """How often each group has read each record so far."""
        return {
            protocol: Counter(value for member in members for value in list(member.values))
            for protocol, members in self._members.items()
        }

    def have_all_partitions(self) -> bool:
        """Each group has given its members all partitions."""
        return all(
            sum(len(member.consumer.assignment()) for member in members) == PARTITIONS
            for members in self._members.values()
        )

    def check(self, records: int) -> None:
        """Each group reads so many records, each once."""

        def has_all() -> bool:
            return all(sum(times.values()) >= records for times in self.times_read().values())

        eventually_sync(has_all, WITHIN_MS)
        for protocol, times in self.times_read().items():
            assert set(times.values()) == {1}, f"{protocol}: read more than once: {_repeated(times)}"
            assert len(times) == records, f"{protocol}: {len(times)} of {records} records"

    def _all(self) -> list[GroupMember]:
        return [member for members in self._members.values() for member in members]

    def _poll(self) -> None:
        while not self._is_over.is_set():
            for member in self._all():
                member.poll_some()


def _repeated(times: Counter[bytes]) -> list[tuple[bytes, int]]:
    return [(value[:40], count) for value, count in times.most_common(10) if count > 1]


def report(line: str) -> None:
    """A line of the run's progress or result."""
    print(line, flush=True)


async def test_the_active_site_is_killed_again_and_again_and_a_sync_link_loses_no_acknowledged_record(
    start_sites: SitesStarter,
) -> None:
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    kills = int(os.environ.get("ANTIPODE_FAULTS") or KILLS)
    report(f"{kills} losses of the active site, ANTIPODE_SEED={seed}")
    chance = random.Random(seed)
    sites = start_sites("--sync", "block")
    succeeded(sites, "links", "alter", LINK, "--reinstate", "automatic")
    active, standby = "a", "b"
    with await started_load(sites, rounds=kills) as load:
        for number in range(kills):
            eventually_sync(lambda: is_protected(sites))
            load.wait_acknowledged(chance.randint(1, BETWEEN_MAX), WITHIN_MS)
            report(f"{number + 1} of {kills}: {active} is killed after {load.acknowledged} acknowledged records")
            sites.broker(active).kill()
            succeeded(sites, "failover", LINK, "--to", standby, "--old-site-is-down", "--accept-data-loss")
            load.wait_acknowledged(1, WITHIN_MS)
            sites.restart(sites.broker(active))
            active, standby = standby, active
        acknowledged = load.finish(WITHIN_MS)
        await caught_up(sites.bootstrap(active), sites.bootstrap(standby), within_ms=WITHIN_MS)
        for site in "ab":
            await load.check_log(sites.bootstrap(site))
    report(
        f"{kills} losses and failovers: each of {acknowledged} acknowledged records is at both sites, once, in order "
        f"and at its offset"
    )


async def test_ten_moves_there_and_back_under_load_leave_both_sites_equal(start_sites: SitesStarter) -> None:
    rounds = int(os.environ.get("ANTIPODE_MOVES") or MOVES_THERE_AND_BACK)
    report(f"{rounds} moves there and back")
    sites = start_sites()
    load = await started_load(sites, rounds=rounds)
    with Groups(f"{sites.bootstrap('a')},{sites.bootstrap('b')}") as groups, load:
        eventually_sync(groups.have_all_partitions, WITHIN_MS)
        for number in range(rounds):
            for to in "ba":
                eventually_sync(lambda: is_protected(sites))
                load.wait_acknowledged(BETWEEN_MAX, WITHIN_MS)
                report(f"{number + 1} of {rounds}: {to} becomes active after {load.acknowledged} acknowledged records")
                moved = json.loads(succeeded(sites, "switchover", LINK, "--to", to, "--output", "json"))
                assert (moved["account"]["is_exact"], moved["account"]["known_lost_records"]) == (True, 0)
        acknowledged = load.finish(WITHIN_MS)
        await caught_up(sites.bootstrap("a"), sites.bootstrap("b"), within_ms=WITHIN_MS)
        for site in "ab":
            await load.check_log(sites.bootstrap(site))
        groups.check(acknowledged)
    sites.stop()
    report(
        f"{2 * rounds} moves: both sites have the same bytes, with each of {acknowledged} acknowledged records once, and "
        f"groups of the protocols {' and '.join(PROTOCOLS)} have read each record once"
    )
