"""The clients of the security matrix."""

from __future__ import annotations

from deploy import client_programs
from tests.compatibility.security.program_clients import Java, Program
from tests.compatibility.security.python_clients import Aiokafka, KafkaPython, Librdkafka
from tests.compatibility.security.secured_client import SecuredClient


def clients() -> tuple[SecuredClient, ...]:
    """In the order of the page."""
    go, node = client_programs.GO, client_programs.NODE
    return (
        Librdkafka(),
        Java(),
        Aiokafka(),
        KafkaPython(),
        Program("franz-go", "github.com/twmb/franz-go", go, "bin/franz"),
        Program("Sarama", "github.com/IBM/sarama", go, "bin/sarama"),
        Program("KafkaJS", "kafkajs", node, "client.js"),
    )
