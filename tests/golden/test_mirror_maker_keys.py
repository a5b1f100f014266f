"""Every key that Apache Kafka knows for MirrorMaker 2, for Connect below it and for its clients
gets a verdict.

The list is Kafka's own (`tests/integration/test_mirror_maker_names.py` asks its classes); it says
of which release it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.settings.config import load_configs, verdicts_on
from mirror.settings.core.mirror_maker_file import DEFAULT_POLICY
from mirror.settings.core.mirror_maker_keys import Fate
from runtime.configuration import ConfigurationError

KEYS = Path(__file__).parent / "mirror" / "mirror_maker_keys.txt"
FILE = {
    "clusters": "a, b",
    "a.bootstrap.servers": "a1:9092",
    "b.bootstrap.servers": "b1:9092",
    "a->b.enabled": "true",
}
WRITTEN = {
    "file": ("{}", "b.{}"),
    "flow": ("{}", "a->b.{}"),
    "producer": ("b.producer.{}", "a->b.producer.{}", "a->b.producer.override.{}", "a->b.target.producer.{}"),
    "consumer": ("a.consumer.{}", "a->b.consumer.{}", "a->b.source.consumer.{}", "b.consumer.{}"),
    "admin": ("a.admin.{}", "a->b.admin.{}", "a->b.source.admin.{}", "b.admin.{}"),
}
"""How keys of a scope are written in a file."""
VALUES = {
    "security.protocol": "PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "ssl.truststore.type": "PEM",
    "ssl.keystore.type": "PEM",
    "ssl.endpoint.identification.algorithm": "https",
    "replication.policy.class": DEFAULT_POLICY,
    "replication.policy.separator": "_",
    "isolation.level": "read_committed",
    "offset-syncs.topic.location": "target",
    "exactly.once.source.support": "enabled",
    "metric.names.formats": "legacy,new",
    "enabled": "true",
}
"""Where any number is not a value."""
REFUSED = ("sasl.kerberos.service.name", "sasl.oauthbearer.")
"""Keys that need Kerberos or OAuth; the other keys name classes of the user's own."""


def known_keys() -> list[tuple[str, str]]:
    """Scope and key."""
    lines = KEYS.read_text(encoding="utf-8").splitlines()
    return [(scope, key) for scope, _, key in (line.partition(" ") for line in lines if not line.startswith("#"))]


def value_of(key: str) -> str:
    """One that Kafka takes."""
    if key in VALUES:
        return VALUES[key]
    return "true" if key.endswith((".enabled", ".enable")) else "5"


@pytest.mark.parametrize("scope", WRITTEN)
def test_no_key_of_mirror_maker_is_unknown_and_only_what_cannot_be_had_is_refused(scope: str) -> None:
    keys = [key for known, key in known_keys() if known == scope]
    assert len(keys) > 90
    refused: set[str] = set()
    for key in keys:
        for form in WRITTEN[scope]:
            written = form.format(key)
            if key in ("clusters", "config.providers") or written in FILE:
                continue
            file = {**FILE, written: value_of(key)}
            try:
                load_configs(file)
            except ConfigurationError:
                refused.add(key)
                continue
            (verdict,) = [verdict for verdict in verdicts_on(file) if verdict.key == written]
            assert verdict.fate is not Fate.UNKNOWN, written
            assert verdict.explanation, written
    assert {key for key in refused if not key.startswith(REFUSED)} <= {
        "sasl.jaas.config",
        "sasl.login.class",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
    }


def test_the_sample_of_kafka_s_own_distribution_makes_both_directions() -> None:
    """Word for word what its keys are (config/connect-mirror-maker.properties)."""
    factors = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    sample = {
        "clusters": "A, B",
        "A.bootstrap.servers": "A_host1:9092, A_host2:9092, A_host3:9092",
        "B.bootstrap.servers": "B_host1:9092, B_host2:9092, B_host3:9092",
        "A->B.enabled": "true",
        "A->B.topics": ".*",
        "B->A.enabled": "true",
        "B->A.topics": ".*",
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in (*factors, "config.storage")},
    }
    there, back = load_configs(sample)
    assert (there.link_name, back.link_name) == ("A-B", "B-A")
    assert [str(address) for address in there.source_bootstrap_servers] == [
        f"A_host{number}:9092" for number in (1, 2, 3)
    ]
    assert there.source_bootstrap_servers == back.target_bootstrap_servers
    assert {there.replication_factor, there.heartbeats_replication_factor, back.checkpoints_replication_factor} == {1}
    assert {verdict.fate for verdict in verdicts_on(sample)} == {Fate.USED, Fate.NOT_NEEDED}
