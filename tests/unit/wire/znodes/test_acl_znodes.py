"""Nodes of ACLs: names of resources as names of nodes that ZooKeeper takes, and back."""

from __future__ import annotations

import re

import pytest

from wire.rules.acls import PatternType, ResourcePattern, ResourceType
from wire.znodes.acl_znodes import acl_path, resource_name

# ZooKeeper's PathUtils, which sees characters outside the basic plane as two surrogates
REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


@pytest.mark.parametrize(
    "name",
    [
        "payments",
        "ünïcode",
        ".",
        "..",
        "a/b",
        "100%",
        "%41",
        "\x00\x1f",
        "a\x7fb",
        "\x9f",
        "\ue000",
        "😀-group",
        "\ufffd",
    ],
)
def test_every_name_of_a_resource_has_a_node_that_zookeeper_takes(name: str) -> None:
    path = acl_path(ResourcePattern(ResourceType.GROUP, name, PatternType.LITERAL))
    parent, _, node = path.rpartition("/")
    assert parent == "/kafka-acl/Group"
    assert node not in (".", "..")
    assert not REFUSED.search(node)
    assert resource_name(node) == name


@pytest.mark.parametrize(("node", "name"), [("a%2Fb", "a/b"), ("%25E9", "%E9"), ("%E9", "%E9"), ("ü", "ü")])
def test_nodes_of_earlier_releases_and_of_kafka_keep_their_names(node: str, name: str) -> None:
    assert resource_name(node) == name
