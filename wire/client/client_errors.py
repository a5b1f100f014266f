"""Errors of a client of the Kafka protocol, grouped by the reaction that they allow.

`Unreachable` and `TransientBrokerError` pass with time or a metadata refresh (`TRANSIENT`); others
do not. Each names the node and the API, for one clear line to an operator.
"""

from typing import Final

from kio.schema.errors import ErrorCode

from wire.protocol.schemas import api_name


class KafkaClientError(Exception):
    """A request that did not succeed. `node` is an address or a node id as text, "" before one was
    chosen.
    """

    def __init__(self, detail: str, *, node: str = "", api_key: int | None = None) -> None:
        place = " ".join(part for part in (node, "" if api_key is None else api_name(api_key)) if part)
        super().__init__(f"{place}: {detail}" if place else detail)
        self.detail = detail
        self.node = node
        self.api_key = api_key


class Unreachable(KafkaClientError):
    """No connection, or it was lost with the request: whether the broker acted on it is unknown."""


class RequestTimedOut(Unreachable):
    """The broker did not answer in time; the connection has been closed."""


class UnsupportedApi(KafkaClientError):
    """Broker and client share no version of the API."""


class BrokerError(KafkaClientError):
    """The broker answered with an error code."""

    def __init__(
        self, code: ErrorCode, *, message: str | None = None, node: str = "", api_key: int | None = None
    ) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name, node=node, api_key=api_key)
        self.code = code


class TransientBrokerError(BrokerError):
    """An error that Kafka calls retriable."""


TRANSIENT: Final = (Unreachable, TransientBrokerError)


def broker_error(
    code: ErrorCode, *, message: str | None = None, node: str = "", api_key: int | None = None
) -> BrokerError:
    """The error for a code, transient if Kafka says that it is."""
    kind = TransientBrokerError if code.retriable else BrokerError
    return kind(code, message=message, node=node, api_key=api_key)


def error_code(value: int) -> ErrorCode:
    """The named code; one that is newer than our list counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.unknown_server_error
