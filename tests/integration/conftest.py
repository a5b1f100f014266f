"""What integration tests of several files share."""

from __future__ import annotations

import pytest

from tests.support.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.processes import Processes


@pytest.fixture(scope="session")
def kafka_b(
    apache_kafka: ApacheKafka, session_processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> ApacheKafka:
    """A second Apache Kafka; the first one says whether there are any."""
    return start_apache_kafka(session_processes, tmp_path_factory.mktemp("kafka-b"))
