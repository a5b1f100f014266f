"""Mirror daemons as processes: a clear error at a start that cannot succeed, an orderly stop, and
several daemons at one link.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror, mirror_ports, wait_for_state
from tests.support.pairs.mirror_sites import start_pair
from tests.support.processes.processes import Processes

pytestmark = pytest.mark.integration


async def test_filters_of_the_file_that_differ_from_the_links_are_an_error(
    processes: Processes, tmp_path: Path
) -> None:
    pair = await start_pair(processes, tmp_path, whitelist=["orders"])
    mirror = pair.start_mirror({"whitelist": "orders,flights"})
    assert mirror.wait_ended() == 1
    assert (
        "configuration whitelist='orders,flights' is not usable: the same as link a-b has: orders" in mirror.log_text()
    )


async def test_a_link_that_is_not_there_is_an_error_that_names_those_that_are(
    processes: Processes, tmp_path: Path
) -> None:
    pair = await start_pair(processes, tmp_path)
    mirror = pair.start_mirror({"link.name": "nowhere"})
    assert mirror.wait_ended() == 1
    assert "site b has no link 'nowhere'; its links: a-b" in mirror.log_text()


async def test_a_mirror_waits_for_a_link_that_it_awaits(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    mirror = pair.start_mirror({"link.name": "nowhere", "antipode.link.awaited": "true"})

    async def explains() -> bool:
        return "site b has no link 'nowhere'" in (await describe_mirror(mirror)).reason

    await eventually(explains)
    assert mirror.is_running


async def test_a_taken_port_is_one_clear_message(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    first = pair.start_mirror()
    await first.wait_ready_async(lambda: '"ready"' in first.log_text())
    second = pair.start_mirror({"antipode.metrics.listener": f"127.0.0.1:{mirror_ports(first)['ready']}"})
    assert second.wait_ended() == 1
    assert "antipode.metrics.listener" in second.log_text()
    assert "Traceback" not in second.log_text()


async def test_a_graceful_stop_drains_and_a_restart_copies_nothing_again(processes: Processes, tmp_path: Path) -> None:
    """MM-25, M10."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    for partition in range(2):
        await pair.produce("orders", partition, 30, records=50, size=1000)
    mirror = pair.start_mirror()
    await pair.caught_up("orders", 2)
    mirror.stop()
    assert mirror.exit_code == 0
    assert '{"drained": true}' in mirror.log_text()
    again = pair.start_mirror()
    await wait_for_state(again, "MIRRORING")
    await pair.produce("orders", 0, 1, records=10)
    await pair.caught_up("orders", 2)

    async def has_counted() -> bool:
        return sum(partition.mirrored_records for partition in (await describe_mirror(again)).partitions) == 10

    await eventually(has_counted)


async def test_two_mirrors_of_one_link_write_everything_once(processes: Processes, tmp_path: Path) -> None:
    """M11."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    pair.start_mirror()
    pair.start_mirror()
    for partition in range(2):
        await pair.produce("orders", partition, 40)
    await pair.caught_up("orders", 2)
    for mirror in pair.mirrors:
        await wait_for_state(mirror, "MIRRORING")


@pytest.mark.long
@pytest.mark.parametrize("through", ["a group", "zookeeper"])
async def test_daemons_that_share_an_exact_link_take_over_from_one_that_dies(
    through: str, processes: Processes, tmp_path: Path, zookeeper_connect: str
) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 4)
    settings = {"antipode.sharing.enabled": "true"}
    if through == "zookeeper":
        settings["antipode.sharing.zookeeper.connect"] = zookeeper_connect
    mirrors = [pair.start_mirror(settings) for _ in range(2)]

    async def is_split() -> bool:
        replies = [await describe_mirror(mirror) for mirror in mirrors]
        assert sorted(len(reply.partitions) for reply in replies) == [2, 2], replies
        return True

    await eventually(is_split)
    for partition in range(4):
        await pair.produce("orders", partition, 10)
    await pair.caught_up("orders", 4)
    mirrors[0].kill()
    for partition in range(4):
        await pair.produce("orders", partition, 10)
    await pair.caught_up("orders", 4)
