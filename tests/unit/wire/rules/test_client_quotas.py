"""Client quotas as entities, values and znodes: Kafka's rules, words and paths."""

from __future__ import annotations

import pytest

from wire.rules.client_quotas import (
    CLIENT_ID,
    IP,
    USER,
    QuotaEntity,
    entity_from_message,
    entity_message,
    quota_entity,
    quota_texts,
    refusal_of_entity,
    refusal_of_value,
)
from wire.znodes.config_znodes import client_quota_path, encode_topic_config, entity_name, quotas_in
from wire.znodes.documents import MalformedZnode

PATHS: list[tuple[QuotaEntity, str]] = [
    (((USER, "alice"),), "/config/users/alice"),
    (((USER, None),), "/config/users/<default>"),
    (((USER, "alice"), (CLIENT_ID, "app")), "/config/users/alice/clients/app"),
    (((USER, None), (CLIENT_ID, None)), "/config/users/<default>/clients/<default>"),
    (((CLIENT_ID, "a b*/~c"),), "/config/clients/a%20b%2A%2F%7Ec"),
    (((USER, "CN=me,O=us"),), "/config/users/CN%3Dme%2CO%3Dus"),
    (((CLIENT_ID, "<default>"),), "/config/clients/%3Cdefault%3E"),
    (((CLIENT_ID, ".."),), "/config/clients/%2E%2E"),
    (((USER, "zoë 100%"),), "/config/users/zo%C3%AB%20100%25"),
    (((IP, "127.0.0.1"),), "/config/ips/127.0.0.1"),
    (((IP, "::1"),), "/config/ips/%3A%3A1"),
]


@pytest.mark.parametrize(("entity", "path"), PATHS)
def test_entities_lie_where_kafka_keeps_them(entity: QuotaEntity, path: str) -> None:
    assert client_quota_path(entity) == path
    assert entity_name(path.rpartition("/")[2]) == entity[-1][1]


@pytest.mark.parametrize("entity", [entity for entity, _ in PATHS])
def test_entities_survive_the_way_between_processes(entity: QuotaEntity) -> None:
    assert entity_from_message(reversed(entity_message(entity))) == entity


def test_the_order_of_the_parts_does_not_matter() -> None:
    assert quota_entity([(CLIENT_ID, "c"), (USER, "u")]) == ((USER, "u"), (CLIENT_ID, "c"))


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ((), "no entity; accepted are user, client-id, ip"),
        ((("team", "x"),), "entity type 'team'; accepted are user, client-id, ip"),
        (((USER, "a"), (USER, "b")), "user more than once"),
        (((USER, ""),), "the user of the client quota is empty; accepted is a name"),
        (((USER, "a"), (IP, "10.0.0.1")), "ip together with user; accepted is ip alone"),
        (((IP, "somewhere"),), "ip=somewhere; accepted is an IPv4 or IPv6 address"),
    ],
)
def test_entities_that_cannot_be_are_refused_with_what_is_accepted(entity: QuotaEntity, words: str) -> None:
    assert words in (refusal_of_entity(entity) or "")


def test_every_entity_of_the_layout_is_accepted() -> None:
    assert [refusal_of_entity(entity) for entity, _ in PATHS] == [None] * len(PATHS)


@pytest.mark.parametrize(
    ("kind", "key", "value", "words"),
    [
        (
            USER,
            "connection_creation_rate",
            1.0,
            "quota 'connection_creation_rate' of user; accepted are producer_byte_rate,",
        ),
        (IP, "producer_byte_rate", 1.0, "quota 'producer_byte_rate' of ip; accepted are connection_creation_rate"),
        (USER, "nonsense", 1.0, "quota 'nonsense' of user; accepted are"),
        (USER, "producer_byte_rate", 0.0, "producer_byte_rate=0.0; accepted is a whole number from 1 to"),
        (USER, "producer_byte_rate", float("nan"), "producer_byte_rate=nan; accepted is a whole number"),
        (USER, "request_percentage", float("inf"), "request_percentage=inf; accepted is a number above 0"),
        (USER, "producer_byte_rate", 1.5, "producer_byte_rate=1.5; accepted is a whole number"),
        (USER, "producer_byte_rate", 1e30, "producer_byte_rate=1e+30; accepted is a whole number"),
    ],
)
def test_values_that_cannot_be_are_refused(kind: str, key: str, value: float, words: str) -> None:
    assert words in (refusal_of_value(((kind, "127.0.0.1"),), key, value) or "")


def test_fractions_are_for_percentages_and_mutations() -> None:
    assert refusal_of_value(((USER, "u"),), "request_percentage", 12.5) is None
    assert refusal_of_value(((USER, "u"),), "controller_mutation_rate", 0.5) is None


def test_a_rate_of_bytes_may_be_the_greatest_long_which_is_a_greater_double() -> None:
    assert refusal_of_value(((USER, "u"),), "producer_byte_rate", 9223372036854775807.0) is None
    assert quota_texts({"producer_byte_rate": 9223372036854775807.0}) == {"producer_byte_rate": "9223372036854775807"}
    assert refusal_of_value(((IP, "127.0.0.1"),), "connection_creation_rate", 2147483648.0)


def test_quotas_are_stored_as_kafka_writes_them_and_beside_what_is_there() -> None:
    payload = encode_topic_config(
        {"SCRAM-SHA-256": "x", **quota_texts({"producer_byte_rate": 1024.0, "request_percentage": 2.5})}
    )
    assert payload == (
        b'{"version":1,"config":{"SCRAM-SHA-256":"x","producer_byte_rate":"1024","request_percentage":"2.5"}}'
    )
    assert quotas_in("/config/users/u", payload) == {"producer_byte_rate": 1024.0, "request_percentage": 2.5}
    assert quotas_in("/config/users/u", b"") == {}
    with pytest.raises(MalformedZnode, match="producer_byte_rate"):
        quotas_in("/config/users/u", b'{"version":1,"config":{"producer_byte_rate":"fast"}}')


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e999"])
def test_a_stored_quota_that_no_broker_can_enforce_is_malformed(text):
    with pytest.raises(MalformedZnode, match="consumer_byte_rate"):
        quotas_in("/config/clients/a", encode_topic_config({"consumer_byte_rate": text}))
