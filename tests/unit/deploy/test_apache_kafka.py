"""The files and settings with which Apache Kafka, the peer, is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import jar_sets, parts
from deploy.apache_kafka import INITIAL_RECORDS, ApacheKafkaServer

_FORMATTING_JAVA = """\
#!/bin/sh
echo '    java.home = /usr/lib/some-java'
echo '    java.specification.version = 17'
for argument in "$@"; do
    case "$argument" in
        */server.properties) /bin/mkdir "${argument%/*}/data" && echo records > "${argument%/*}/data/bootstrap.checkpoint" ;;
    esac
done
"""


@pytest.fixture
def formatting_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A Java that writes the first metadata records as Apache Kafka's tool does."""
    executable = tmp_path / "home" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(_FORMATTING_JAVA, encoding="ascii")
    executable.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(parts.PARTS_DIRECTORY_VARIABLE, str(tmp_path / "parts"))
    parts.java.cache_clear()
    jar_sets.KAFKA.directory.mkdir(parents=True)
    (jar_sets.KAFKA.directory / "some.jar").write_bytes(b"jar")
    yield executable
    parts.java.cache_clear()


def _identity(server: ApacheKafkaServer) -> dict[str, str]:
    lines = (server.directory / "data" / "meta.properties").read_text(encoding="ascii").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_directories_after_the_first_are_formatted_without_the_tool(formatting_java: Path, tmp_path: Path) -> None:
    nodes = [
        ApacheKafkaServer(name="kafka", directory=tmp_path / str(n), port=1, controller_port=2, node_id=n)
        for n in (1, 2, 3)
    ]
    nodes[0].format()
    formatting_java.unlink()
    for node in nodes[1:]:
        node.format()
        assert (node.directory / "data" / INITIAL_RECORDS).read_text(encoding="ascii") == "records\n"
    second, third = map(_identity, nodes[1:])
    assert (second["node.id"], third["node.id"]) == ("2", "3")
    assert second["cluster.id"] == third["cluster.id"]
    assert second["directory.id"] != third["directory.id"]


def test_settings_go_over_the_defaults_and_addresses_are_loopback(tmp_path: Path) -> None:
    server = ApacheKafkaServer(
        name="kafka",
        directory=tmp_path,
        port=19092,
        controller_port=19093,
        settings={"node.id": "7", "num.partitions": "8"},
    )
    properties = server.properties()
    assert (properties["node.id"], properties["num.partitions"]) == ("7", "8")
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093"
    assert Path(properties["log.dirs"]).is_relative_to(tmp_path)
    assert server.bootstrap_servers == "127.0.0.1:19092"


def test_a_server_that_is_not_there_does_not_serve(tmp_path: Path) -> None:
    server = ApacheKafkaServer(name="kafka", directory=tmp_path, port=1, controller_port=2)
    assert not server.is_serving()


def test_nodes_of_a_cluster_vote_together_and_keep_three_copies_of_internal_topics(tmp_path: Path) -> None:
    voters = {1: 19103, 2: 19203, 3: 19303}
    server = ApacheKafkaServer(
        name="kafka-2", directory=tmp_path, port=19202, controller_port=voters[2], node_id=2, voters=voters
    )
    properties = server.properties()
    assert properties["node.id"] == "2"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:19103,2@127.0.0.1:19203,3@127.0.0.1:19303"
    assert properties["offsets.topic.replication.factor"] == "3"
    assert properties["transaction.state.log.min.isr"] == "2"
