"""The configuration of MirrorMaker 2."""

from __future__ import annotations

from bench.peers.mirror_maker import mirrored_topic, properties


def test_it_mirrors_the_topics_one_way_with_its_best_settings() -> None:
    configuration = properties("127.0.0.1:1", "127.0.0.1:2", ["drained", "steady"])
    assert configuration["A.bootstrap.servers"] == "127.0.0.1:1"
    assert configuration["B.bootstrap.servers"] == "127.0.0.1:2"
    assert configuration["A->B.topics"] == "drained,steady"
    assert (configuration["A->B.enabled"], configuration["B->A.enabled"]) == ("true", "false")
    assert configuration["tasks.max"] == "4"
    assert mirrored_topic("drained") == "A.drained"
