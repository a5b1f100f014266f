"""Translate links over lines that have every fault of the table, with Apache Kafka at the source,
at the target and at both ends.

Promised, while records keep coming: each record once, in order, its bytes unchanged, and all by
itself. To every reader where the mirror writes under sequences; to read-committed ones where it
writes in transactions (then others see some records more, which are counted). The lines to either
end are struck, or both at the same time. The batches are dated 1970, as those of a topic that is
moved in with its history.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.clients.steady_batches import LARGE, SteadyBatches
from tests.support.pairs.link_faults import (
    FLAPPING_LINES,
    FLAPPING_S,
    HEALED_WITHIN_MS,
    LINE_FAULTS,
    LONG_S,
    LONGER_S,
    OUTLASTING_REQUESTS_S,
    SHORT_S,
)
from tests.support.pairs.many_lines import (
    LINE,
    QUICK,
    links_in_turn,
    struck_at_one_end,
)
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_line_faults import (
    ANTIPODE,
    KAFKA,
    PARTITIONS,
    SEQUENCES,
    demand_surplus_is_known,
    has_as_many,
    name_of,
    start_ends,
    translate_link_under,
    translate_links_under,
)
from tests.support.pairs.translate_links import (
    create_topic,
    start_translate_mirror,
    surplus_records,
    total_end,
    wait_equal,
    wait_nothing_lost,
)
from tests.support.pairs.translate_transactions import TRANSACTIONS
from tests.support.processes.apache_kafka import ApacheKafka, start_proxied_kafka
from tests.support.processes.processes import Processes
from tests.support.processes.secured_kafka import start_secured_kafka
from tests.support.processes.toxiproxy import Toxiproxy

pytestmark = [pytest.mark.chaos, pytest.mark.java, pytest.mark.timeout(600)]

PAIRS_OF_KINDS = [
    pytest.param((KAFKA, KAFKA), id="kafka-to-kafka"),
    pytest.param((KAFKA, ANTIPODE), id="kafka-to-antipode"),
    pytest.param((ANTIPODE, KAFKA), id="antipode-to-kafka"),
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("settings", "lasting_s"),
    [
        pytest.param(SEQUENCES, SHORT_S, id="sequences-0.8"),
        pytest.param(SEQUENCES, LONG_S, id="sequences-43.0"),
        pytest.param(TRANSACTIONS, SHORT_S, id="transactions-0.8"),
    ],
)
@pytest.mark.parametrize("faulty", ["source", "target"])
@pytest.mark.parametrize("far", [ANTIPODE, KAFKA])
async def test_a_translate_link_with_apache_kafka_delivers_once_and_in_order(
    far: str,
    faulty: str,
    settings: Mapping[str, str],
    lasting_s: float,
    apache_kafka: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    """The proxied end is Apache Kafka, the other one either; so each stands at either end, and both
    at once.
    """
    proxied, proxy = start_proxied_kafka(processes, tmp_path / "far", toxiproxy)
    near = apache_kafka.bootstrap_servers
    if far == ANTIPODE:
        near = (await start_lone_site(processes, tmp_path, "near")).bootstrap
    ends = (proxied.bootstrap_servers, near) if faulty == "source" else (near, proxied.bootstrap_servers)
    await translate_link_under(links_in_turn(proxy, None), lasting_s, ends, settings, processes, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [pytest.param(SEQUENCES, id="sequences"), pytest.param(TRANSACTIONS, id="transactions", marks=pytest.mark.long)],
)
@pytest.mark.usefixtures("kafka_programs")
async def test_a_translate_link_delivers_once_and_in_order_over_two_bad_lines(
    settings: Mapping[str, str],
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    """The pairs of faults are random."""
    site = await start_lone_site(processes, tmp_path, "near", toxiproxy=toxiproxy, lines=1)
    kafka, proxy = start_proxied_kafka(processes, tmp_path / "far", toxiproxy)
    ends = (kafka.bootstrap_servers, site.lines[0].address)
    await translate_link_under(links_in_turn(proxy, site.lines[0]), SHORT_S, ends, settings, processes, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "settings", [pytest.param(SEQUENCES, id="sequences"), pytest.param(TRANSACTIONS, id="transactions")]
)
@pytest.mark.parametrize("faulty", ["source", "target", "both"])
@pytest.mark.parametrize("kinds", PAIRS_OF_KINDS)
@pytest.mark.usefixtures("kafka_programs")
async def test_a_translate_link_gets_on_over_a_line_that_is_up_every_other_ten_seconds(
    kinds: tuple[str, str],
    faulty: str,
    settings: Mapping[str, str],
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    source, target = await start_ends(kinds, faulty, processes, tmp_path, toxiproxy, lines=1)
    topic = f"lines-{name_of(tmp_path)}"
    await create_topic(source.bootstrap, topic, PARTITIONS)
    given = {"whitelist": topic, "link.name": topic, **LINE, **settings}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source.address(0), target.address(0), given)
    lines = [end.lines[0] if end.lines else None for end in (source, target)]
    for link in links_in_turn(*lines, FLAPPING_LINES):
        async with SteadyBatches(source.bootstrap, topic, PARTITIONS, batches_per_second=40) as load:
            await load.wait_for(2)
            had = await total_end(source.bootstrap, topic, PARTITIONS)
            await link.strike(FLAPPING_S)
            mirrored = await total_end(target.bootstrap, f"a.{topic}", PARTITIONS)
            assert mirrored > had, f"{link}: {mirrored} of {had} records after {FLAPPING_S} s"
        has = await total_end(source.bootstrap, topic, PARTITIONS)
        await wait_equal(source.bootstrap, target.bootstrap, topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)
        print(f"passed {link}: {had} records before, {mirrored} of {has} mirrored in the end", flush=True)
    await demand_surplus_is_known(mirror, target.bootstrap, topic, settings)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("kafka_programs")
async def test_a_secured_link_delivers_large_batches_once_and_in_order_over_a_bad_line(
    processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """Both ends have TLS and a login, and are behind one line."""
    kafka = start_secured_kafka(processes, tmp_path / "kafka", toxiproxy)
    topic = f"lines-{name_of(tmp_path)}"
    await create_topic(kafka.plain, topic, PARTITIONS)
    given = {"whitelist": topic, "link.name": topic, "request.timeout.ms": QUICK["request.timeout.ms"]}
    given |= kafka.client("source", mechanism="SCRAM-SHA-512") | kafka.client("target", mechanism="PLAIN")
    start_translate_mirror(processes, tmp_path, "mirror", kafka.secured, kafka.secured, given)
    for link in links_in_turn(kafka.line, None):
        async with SteadyBatches(kafka.plain, topic, PARTITIONS, **LARGE) as load:
            await load.wait_for(2)
            await link.strike(SHORT_S)
        await wait_equal(kafka.plain, kafka.plain, topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)
        print(f"passed {link} for {SHORT_S} s", flush=True)


FORGETTING = {"producer.id.expiration.check.interval.ms": "20"}
"""A broker forgets a producer whose last records are older than a day, here at every look; then
repetitions are news to it.
"""


@pytest.mark.long
async def test_records_of_long_ago_arrive_once_though_apache_kafka_forgets_their_producer(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    proxied, proxy = start_proxied_kafka(processes, tmp_path / "far", toxiproxy, FORGETTING)
    ends = (apache_kafka.bootstrap_servers, proxied.bootstrap_servers)
    all_of_them = struck_at_one_end([proxy] * len(LINE_FAULTS))
    links = [link for link in all_of_them if str(link) in ("a black hole, back", "resets, back")]
    await translate_link_under(links, OUTLASTING_REQUESTS_S, ends, SEQUENCES, processes, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_nothing_is_lost_and_repetitions_are_counted_where_late_requests_reach_a_broker_that_forgot_the_producer(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """A line that delivers what it held back for longer than a request lasts: exactly-once ends
    there, and says so.
    """
    proxied, proxy = start_proxied_kafka(processes, tmp_path / "far", toxiproxy, FORGETTING)
    source, target = apache_kafka.bootstrap_servers, proxied.bootstrap_servers
    topic = f"lines-{name_of(tmp_path)}"
    await create_topic(source, topic, PARTITIONS)
    given = {"whitelist": topic, "link.name": topic, **QUICK}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, given)
    async with SteadyBatches(source, topic, PARTITIONS, batches_per_second=40) as load:
        for link in links_in_turn(None, proxy):
            await load.wait_for(2)
            await link.strike(OUTLASTING_REQUESTS_S)
            await has_as_many(source, target, topic, within_ms=HEALED_WITHIN_MS)
            print(f"passed {link}", flush=True)
    repeated = await wait_nothing_lost(source, target, topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)
    print(f"repeated records by partition: {repeated}", flush=True)
    assert await surplus_records(mirror, topic) == repeated


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("faulty", "lasting_s"),
    [
        *((faulty, lasting_s) for faulty in ("source", "target") for lasting_s in LONGER_S),
        ("both", LONG_S),
        ("both", LONGER_S[0]),
    ],
)
@pytest.mark.parametrize("kinds", PAIRS_OF_KINDS)
@pytest.mark.usefixtures("kafka_programs")
async def test_translate_links_with_apache_kafka_outlast_faults_longer_than_every_time_limit(
    kinds: tuple[str, str],
    faulty: str,
    lasting_s: float,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    await translate_links_under(faulty, lasting_s, kinds, SEQUENCES, processes, tmp_path, toxiproxy)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lasting_s", [LONG_S, LONGER_S[0]])
@pytest.mark.parametrize("faulty", ["source", "target", "both"])
@pytest.mark.parametrize("kinds", PAIRS_OF_KINDS)
@pytest.mark.usefixtures("kafka_programs")
async def test_links_that_write_in_transactions_outlast_faults_longer_than_a_transaction(
    kinds: tuple[str, str],
    faulty: str,
    lasting_s: float,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    """A target aborts what is open for a minute, and fences who opened it."""
    await translate_links_under(faulty, lasting_s, kinds, TRANSACTIONS, processes, tmp_path, toxiproxy)
