"""`antipode up`, the front door that other people's programs are pointed at.

Promised: one line of JSON, with the keys of the contract, after everything is ready; a clean stop,
with code 0 and without any process left, on SIGTERM and Ctrl-C at any moment; the same data and
addresses after a restart; for an obstacle one clear message, the documented exit code (1 failed, 2
wrong usage), and no process left.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy import parts
from runtime.addresses import HostPort, parse_host_port, parse_host_ports
from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.eventually import eventually_sync
from tests.support.pairs.site_comparison import caught_up, site_client

pytestmark = pytest.mark.integration

PROGRESS = ("starting ZooKeeper", "starting brokers", "linking a to b", "stopping")


def refused(sites: EmbeddedSites, code: int, *arguments: str) -> str:
    """Start with an obstacle: the command ends with the code and one message, and leaves no
    process. The message.
    """
    sites.start(*arguments)
    ended = sites.wait_ended()
    errors = sites.errors
    assert ended == code, errors
    assert sites.output == ""
    assert sites.left_over() == []
    complaints = [line for line in errors.splitlines() if line not in PROGRESS]
    assert len(complaints) == 1, errors
    assert complaints[0].startswith("error: ")
    return complaints[0]


def is_process(described: dict[str, Any]) -> bool:
    return (
        isinstance(described["name"], str)
        and Path(f"/proc/{described['pid']}").is_dir()
        and Path(described["dir"]).is_dir()
        and Path(described["log"]).is_file()
    )


def test_one_line_of_json_says_where_everything_is_and_ctrl_c_stops_it(start_sites: SitesStarter) -> None:
    sites = start_sites("--sites", "a,b", "--brokers", "1")
    assert sites.output.count("\n") == 1
    document = json.loads(sites.output)
    assert list(document["sites"]) == ["a", "b"]
    for site in document["sites"].values():
        assert len(parse_host_ports(site["bootstrap_servers"])) == 1
        assert parse_host_port(site["zookeeper"])
        assert [str(parse_host_port(address)) for address in site["grpc"]] == site["grpc"]
        assert [str(parse_host_port(address)) for address in site["metrics"]] == site["metrics"]
        assert [process["name"].partition("-")[0] for process in site["processes"]] == ["zookeeper", "broker"]
        assert all(is_process(process) for process in site["processes"])
    (link,) = document["links"]
    assert (link["name"], link["source"], link["target"]) == ("a-b", "a", "b")
    assert {(proxy["site"], proxy["kind"]) for proxy in link["proxies"]} == {
        (site, kind) for site in "ab" for kind in ("link", "grpc")
    }
    assert [(one["name"], one["link"], one["site"]) for one in document["mirrors"]] == [
        ("a-b", "a-b", "b"),
        ("b-a", "a-b", "a"),
    ]
    for mirror in document["mirrors"]:
        assert is_process(mirror)
        assert parse_host_port(mirror["metrics"])
    assert json.loads((sites.directory / "environment.json").read_text()) == document
    assert_metrics_are_where_it_says(sites)
    sites.stop(signal.SIGINT)


def assert_metrics_are_where_it_says(sites: EmbeddedSites) -> None:
    import requests

    pages = [*(address for site in sites.environment.sites.values() for address in site.metrics)]
    pages += [mirror.metrics for mirror in sites.environment.mirrors]
    for address in pages:
        page = requests.get(f"http://{address}/metrics", timeout=30)
        assert page.status_code == 200
        assert "process_resident_memory_bytes" in page.text
    assert "antipode" in page.text


async def test_without_proxies_the_sites_reach_each_other_directly_and_the_blacklist_counts(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites("--no-proxy", "--blacklist", "control-.*")
    assert sites.document["links"][0]["proxies"] == []
    assert "toxiproxy" not in sites.document
    await create_topic(sites, name="control-lights")
    await create_topic(sites)
    produce(sites, 100)
    ends = await caught_up(sites.bootstrap("a"), sites.bootstrap("b"), without=("control-lights",))
    assert ends == {(TOPIC, 0): 100}
    sites.stop()


@pytest.mark.long
async def test_without_a_link_each_site_is_for_itself(start_sites: SitesStarter) -> None:
    sites = start_sites("--no-link")
    assert (sites.document["links"], sites.document["mirrors"]) == ([], [])
    for site, count in (("a", 30), ("b", 20)):
        await create_topic(sites, site=site)
        produce(sites, count, site=site)
        received = librdkafka_consume(sites.bootstrap(site), TOPIC, count, group="board")
        assert [record.offset for record in received] == list(range(count))
    sites.stop()


@pytest.mark.long
async def test_two_brokers_a_site_share_the_partitions_and_all_are_mirrored(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", "2")
    partitions = 6
    await create_topic(sites, partitions)
    produce(sites, 600, partitions=partitions)
    assert await equal_ends(sites) == {(TOPIC, partition): 100 for partition in range(partitions)}
    for site, nodes in (("a", {1, 2}), ("b", {1001, 1002})):
        assert len(parse_host_ports(sites.bootstrap(site))) == 2
        async with site_client(sites.bootstrap(site)) as client:
            topic = (await client.metadata([TOPIC])).topics[TOPIC]
            assert {partition.leader_id for partition in topic.partitions.values()} == nodes
    received = librdkafka_consume(sites.bootstrap("b"), TOPIC, 600, group="board")
    assert len({(record.partition, record.offset) for record in received}) == 600
    sites.stop()


@pytest.mark.long
async def test_three_sites_have_a_link_from_the_first_to_each_other_one(start_sites: SitesStarter) -> None:
    sites = start_sites("--sites", "a,b,c")
    assert [link["name"] for link in sites.document["links"]] == ["a-b", "a-c"]
    await create_topic(sites)
    produce(sites, 100)
    for target in "bc":
        assert await caught_up(sites.bootstrap("a"), sites.bootstrap(target)) == {(TOPIC, 0): 100}
    sites.stop()


@pytest.mark.long
async def test_started_again_in_the_same_directory_it_goes_on_with_its_data_and_ports(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites()
    await create_topic(sites)
    produce(sites, 50)
    assert len(librdkafka_consume(sites.bootstrap("a"), TOPIC, 20, group="board")) == 20
    await equal_ends(sites)
    addresses = {name: site["bootstrap_servers"] for name, site in sites.document["sites"].items()}
    sites.stop()
    sites.start_and_wait()
    assert {name: site["bootstrap_servers"] for name, site in sites.document["sites"].items()} == addresses
    produce(sites, 50)
    received = librdkafka_consume(sites.bootstrap("a"), TOPIC, 80, group="board")
    assert [record.offset for record in received] == list(range(20, 100))
    assert await equal_ends(sites) == {(TOPIC, 0): 100}
    sites.stop()


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param("starting ZooKeeper", signal.SIGTERM, marks=pytest.mark.long),
        ("starting brokers", signal.SIGINT),
        pytest.param("linking", signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_a_stop_during_the_start_ends_it(start_sites: SitesStarter, number: signal.Signals, moment: str) -> None:
    sites = start_sites.prepared()
    sites.start()
    eventually_sync(lambda: moment in sites.errors)
    sites.stop(number)
    # On a slow machine the sites may be ready before the signal arrives: then the output is whole.
    assert sites.output == "" or (moment == "linking" and json.loads(sites.output)["links"])


def test_a_second_signal_kills_the_parts_and_ends_it(start_sites: SitesStarter) -> None:
    sites = start_sites()
    sites.send(signal.SIGINT)
    # the mirrors stop first, then the brokers: none of these has ended at this moment
    eventually_sync(lambda: "stopping" in sites.errors)
    sites.send(signal.SIGINT)
    assert sites.wait_ended() == -signal.SIGINT
    eventually_sync(lambda: sites.left_over() == [])


async def test_a_second_one_in_the_same_directory_is_refused_and_harms_nothing(start_sites: SitesStarter) -> None:
    sites = start_sites()
    running = {process.pid for process in sites.left_over()}
    second = start_sites.prepared("--dir", str(sites.directory))
    second.start()
    assert second.wait_ended() == 1
    assert f"{sites.directory} is running already" in second.errors
    assert running <= {process.pid for process in sites.left_over()}
    await create_topic(sites)
    produce(sites, 10)
    sites.stop()


async def test_after_a_kill_the_next_start_cleans_up_what_was_left_running(start_sites: SitesStarter) -> None:
    sites = start_sites()
    await create_topic(sites)
    produce(sites, 20)
    sites.send(signal.SIGKILL)
    sites.wait_ended()
    assert sites.left_over() != []
    sites.start_and_wait()
    produce(sites, 20)
    assert await equal_ends(sites) == {(TOPIC, 0): 40}
    sites.stop()


@contextmanager
def occupied(address: HostPort) -> Iterator[None]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((address.host, address.port))
        holder.listen()
        yield


@pytest.mark.long
def test_each_port_in_use_is_named(start_sites: SitesStarter) -> None:
    sites = start_sites()
    taken = {
        "client": sites.document["sites"]["a"]["bootstrap_servers"],
        "grpc": sites.document["sites"]["b"]["grpc"][0],
        "metrics": sites.document["sites"]["a"]["metrics"][0],
        "zookeeper": sites.document["sites"]["b"]["zookeeper"],
        "toxiproxy": sites.document["toxiproxy"]["api"],
        "proxy": sites.document["links"][0]["proxies"][0]["listen"],
        "mirror": sites.document["mirrors"][0]["grpc"],
    }
    sites.stop()
    with ExitStack() as held:
        for address in taken.values():
            held.enter_context(occupied(parse_host_port(address)))
        message = refused(sites, 1)
    assert [part for part, address in taken.items() if address not in message] == []


def test_a_directory_that_is_a_file_is_refused(start_sites: SitesStarter) -> None:
    sites = start_sites.prepared()
    sites.directory.write_text("not a directory")
    assert f"--dir {sites.directory} cannot be used" in refused(sites, 1)
    assert sites.directory.read_text() == "not a directory"


@pytest.mark.long
def test_a_directory_of_other_sites_is_refused(start_sites: SitesStarter) -> None:
    sites = start_sites("--no-proxy", "--no-link")
    sites.stop()
    assert "holds sites a,b with 1 brokers" in refused(sites, 1, "--sites", "a,c")
    (sites.directory / "ports.json").write_text("{")
    assert "ports.json" in refused(sites, 1)


WRONG_USAGE = {
    "site twice": ("--sites", "a,a"),
    "no site name": ("--sites", "a b"),
    "no site": ("--sites", ","),
    "whitelist": ("--whitelist", ".*,["),
    "blacklist": ("--blacklist", "ok,(("),
    "property": ("--broker-config", "nonsense"),
    "unknown option": ("--no-such-option",),
    "no broker": ("--brokers", "0"),
}


@pytest.mark.parametrize("case", sorted(WRONG_USAGE))
def test_wrong_usage_is_named_before_anything_starts(start_sites: SitesStarter, case: str) -> None:
    sites = start_sites.prepared(*WRONG_USAGE[case])
    sites.start()
    assert sites.wait_ended() == 2
    assert WRONG_USAGE[case][0] in sites.errors
    assert "Traceback" not in sites.errors
    assert not sites.directory.exists()


def test_a_property_that_a_broker_refuses_is_named(start_sites: SitesStarter) -> None:
    sites = start_sites.prepared("--broker-config", "log.segment.bytes=many")
    assert "log.segment.bytes" in refused(sites, 1)


def java_that(directory: Path, script: str) -> str:
    """A JAVA_HOME whose `java` is this shell script."""
    executable = directory / "java-home" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return str(directory / "java-home")


def bare_environment(directory: Path, **more: str) -> dict[str, str]:
    """An environment with toxiproxy and without Java."""
    own_parts = directory / "parts"
    (own_parts / "bin").mkdir(parents=True)
    (own_parts / "bin" / "toxiproxy-server").symlink_to(parts.toxiproxy())
    path = directory / "path"
    path.mkdir()
    (path / "sh").symlink_to("/bin/sh")
    return {"PATH": str(path), "JAVA_HOME": "", parts.PARTS_DIRECTORY_VARIABLE: str(own_parts), **more}


def test_a_machine_without_java_gets_an_error(start_sites: SitesStarter, tmp_path: Path) -> None:
    sites = start_sites.prepared(environment=bare_environment(tmp_path))
    assert "no Java 17 or newer" in refused(sites, 1)


def test_a_java_that_is_too_old_is_named(start_sites: SitesStarter, tmp_path: Path) -> None:
    home = java_that(tmp_path, 'echo "java.specification.version = 11"; echo "java.home = /nowhere"')
    sites = start_sites.prepared(environment=bare_environment(tmp_path, JAVA_HOME=home))
    message = refused(sites, 1)
    assert f"{home}/bin/java: is Java 11" in message


def test_a_zookeeper_that_dies_while_it_starts_is_quoted(start_sites: SitesStarter, tmp_path: Path) -> None:
    real = parts.java().executable
    home = java_that(
        tmp_path, f'case "$*" in *zookeeper-a*|*/a/zookeeper*) echo "error: no heap"; exit 3;; esac; exec {real} "$@"'
    )
    sites = start_sites.prepared(environment={"JAVA_HOME": home})
    message = refused(sites, 1)
    assert "zookeeper-a ended while it was starting: no heap" in message


def test_a_machine_without_toxiproxy_gets_an_error_with_the_alternative(
    start_sites: SitesStarter, tmp_path: Path
) -> None:
    environment = bare_environment(tmp_path, JAVA_HOME=str(parts.java().home))
    (Path(environment[parts.PARTS_DIRECTORY_VARIABLE]) / "bin" / "toxiproxy-server").unlink()
    sites = start_sites.prepared(environment=environment)
    assert "--no-proxy" in refused(sites, 1)


def test_help_says_how_to_begin(start_sites: SitesStarter) -> None:
    sites = start_sites.prepared()
    sites.start("--help")
    assert sites.wait_ended() == 0
    assert "Example: antipode up --sites a,b" in sites.output
