"""What Apache Kafka, the peer, is started with."""

from __future__ import annotations

from pathlib import Path

from deploy.apache_kafka import ApacheKafkaServer


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
