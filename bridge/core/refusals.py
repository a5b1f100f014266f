"""The bridge's error responses: HTTP status, the REST proxy's error number, a message.

The codes are those of Confluent's Kafka REST proxy: the HTTP status, followed by two digits if
several errors share the status. Raised anywhere in a request; `app.py` turns it into the response.
"""

from __future__ import annotations

import msgspec


class Refused(Exception):
    """A request that ends with an error document."""

    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message


class ErrorBody(msgspec.Struct):
    """The document of an error."""

    error_code: int
    message: str


UNAUTHORIZED = 401
KAFKA_AUTHENTICATION = 40101
KAFKA_AUTHORIZATION = 40301
TOPIC_NOT_FOUND = 40401
PARTITION_NOT_FOUND = 40402
INSTANCE_NOT_FOUND = 40403
UNKNOWN_TOPIC_OR_PARTITION = 40403
FORMAT_MISMATCH = 40601
INSTANCE_EXISTS = 40902
ILLEGAL_STATE = 40903
INVALID_CONSUMER_CONFIG = 42204
CONSTRAINT_VIOLATED = 40001
KAFKA_BAD_REQUEST = 40002
TOO_MANY_REQUESTS = 42901
KAFKA_ERROR = 50002
KAFKA_RETRIABLE_ERROR = 50003


def unauthorized(why: str) -> Refused:
    """The client has not logged in, or its login is wrong."""
    return Refused(401, UNAUTHORIZED, f"Unauthorized: {why}.")


def forbidden(what: str) -> Refused:
    """The principal lacks the right for this."""
    return Refused(403, KAFKA_AUTHORIZATION, what)


def kafka_refuses_login(what: str) -> Refused:
    """Kafka refuses the login of the user that acts for the principal."""
    return Refused(401, KAFKA_AUTHENTICATION, f"Kafka authentication failed: {what}")


def unknown_topic_or_partition() -> Refused:
    """v3: the topic or partition does not exist."""
    return Refused(404, UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def topic_not_found() -> Refused:
    """v2: the topic does not exist."""
    return Refused(404, TOPIC_NOT_FOUND, "Topic not found.")


def partition_not_found() -> Refused:
    """v2: the topic does not have this partition."""
    return Refused(404, PARTITION_NOT_FOUND, "Partition not found.")


def instance_not_found() -> Refused:
    """Refuse a consumer instance that does not exist, or that has been closed."""
    return Refused(404, INSTANCE_NOT_FOUND, "Consumer instance not found.")


def instance_exists() -> Refused:
    """Another instance of the group has this name."""
    return Refused(
        409, INSTANCE_EXISTS, "Consumer with specified consumer ID already exists in the specified consumer group."
    )


def illegal_state(what: str) -> Refused:
    """The instance is in the wrong state for this request."""
    return Refused(409, ILLEGAL_STATE, f"Illegal state: {what}")


def invalid_consumer_config(what: str) -> Refused:
    """A setting of a new instance cannot be used."""
    return Refused(422, INVALID_CONSUMER_CONFIG, f"Invalid consumer configuration: {what}")


def malformed(what: str) -> Refused:
    """The body is not JSON, or not UTF-8."""
    return Refused(400, 400, f"Malformed JSON: {what}")


def unprocessable(what: str) -> Refused:
    """The body is JSON of another structure than the request expects."""
    return Refused(422, 422, what)


def bad_request(what: str) -> Refused:
    """A parameter cannot be parsed, or Kafka rejects the request as invalid."""
    return Refused(400, KAFKA_BAD_REQUEST, what)


def too_large(limit_bytes: int) -> Refused:
    """The body exceeds the bridge's limit."""
    return Refused(413, 413, f"The request is larger than {limit_bytes} bytes.")


def too_many(what: str) -> Refused:
    """A limit of the bridge is reached; a later request may succeed."""
    return Refused(429, TOO_MANY_REQUESTS, what)


def kafka_failed(message: str, *, is_retriable: bool) -> Refused:
    """Kafka answered with an error, or did not answer."""
    if is_retriable:
        return Refused(500, KAFKA_RETRIABLE_ERROR, f"Retriable Kafka error: {message}")
    return Refused(500, KAFKA_ERROR, f"Kafka error: {message}")


def resource_not_found(what: str) -> Refused:
    """v3: the resource is not there."""
    return Refused(404, 404, f"{what} cannot be found.")
