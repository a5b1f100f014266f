"""Turns librdkafka's errors into the bridge's responses."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from bridge.core import refusals
from bridge.core.refusals import Refused

_INVALID = {
    KafkaError._INVALID_ARG,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.INVALID_REQUEST,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.POLICY_VIOLATION,
    KafkaError.SECURITY_DISABLED,
    KafkaError.UNKNOWN_MEMBER_ID,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NOT_LOGGED_IN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
UNREACHED = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
_UNKNOWN_TOPIC = {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}


def error_of(exception: KafkaException) -> KafkaError:
    """The error inside."""
    error: KafkaError = exception.args[0]
    return error


def refused(error: KafkaError) -> Refused:
    """The v3 response to a request that met the error."""
    code = error.code()
    if code in _UNKNOWN_TOPIC:
        return refusals.unknown_topic_or_partition()
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return refusals.resource_not_found("Consumer group")
    if code in _FORBIDDEN:
        return refusals.forbidden(error.str())
    if code in _NOT_LOGGED_IN:
        return refusals.kafka_refuses_login(error.str())
    if code in _INVALID:
        return refusals.bad_request(error.str())
    return refusals.kafka_failed(error.str(), is_retriable=error.retriable() or code in UNREACHED)


def refused_v2(error: KafkaError) -> Refused:
    """The v2 response to a request that met the error."""
    if error.code() in _UNKNOWN_TOPIC:
        return refusals.topic_not_found()
    if error.code() == KafkaError._UNKNOWN_PARTITION:
        return refusals.partition_not_found()
    if error.code() == KafkaError._STATE:
        return refusals.illegal_state(error.str())
    return refused(error)
