"""Each key that Apache Kafka's broker has is read here, or named with the reason why it counts for
nothing, or refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.settings.foreign_configs import foreign_keys, reason_without_effect
from broker.settings.loading import read_keys
from tests.support.clients.java_clients import KafkaPrograms

pytestmark = pytest.mark.integration

PROGRAM = """
import org.apache.kafka.server.config.AbstractKafkaConfig;

public class BrokerKeys {
    public static void main(String[] arguments) {
        AbstractKafkaConfig.CONFIG_DEF.names().forEach(System.out::println);
    }
}
"""


def test_no_key_of_kafkas_is_taken_for_a_typing_error(kafka_programs: KafkaPrograms, tmp_path: Path) -> None:
    program = tmp_path / "BrokerKeys.java"
    program.write_text(PROGRAM)
    keys = kafka_programs.run_source(program).decode().split()
    assert len(keys) > 300
    read = read_keys()
    assert [key for key in sorted(keys) if key not in read and reason_without_effect(key) is None] == []


def test_no_key_is_both_read_and_named_as_one_without_effect() -> None:
    assert read_keys().isdisjoint(foreign_keys())
