"""Changes of log levels that are refused, with the errors of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.configs.logger_levels import alter_loggers
from broker.settings.core.broker_configs import Operation, PropertyChange


@pytest.mark.parametrize(
    ("name", "operation", "value", "error"),
    [
        ("root", Operation.SET, "debug", ErrorCode.invalid_config),
        ("nowhere", Operation.SET, "DEBUG", ErrorCode.invalid_config),
        ("nowhere", Operation.DELETE, None, ErrorCode.invalid_config),
        ("root", Operation.DELETE, None, ErrorCode.invalid_request),
        ("root", Operation.APPEND, "DEBUG", ErrorCode.invalid_request),
        ("nowhere", Operation.SUBTRACT, "DEBUG", ErrorCode.invalid_request),
    ],
)
def test_a_level_that_cannot_be_set_is_refused(
    name: str, operation: Operation, value: str | None, error: ErrorCode
) -> None:
    found, message = alter_loggers([PropertyChange(name, operation, value)], is_validate_only=False)
    assert (found, bool(message)) == (error, True)
