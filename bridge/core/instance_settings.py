"""The settings of a consumer instance, as its creator sends them: strings, numbers and booleans
alike.
"""

from __future__ import annotations

import msgspec

from bridge.core.media_types import EmbeddedFormat
from bridge.core.refusals import CONSTRAINT_VIOLATED, Refused, invalid_consumer_config

FETCH_MIN_BYTES_MAX = 10_000_000
RESET_POLICIES = {"earliest": "earliest", "latest": "latest", "none": "error"}
"""The policy's name in the request, and librdkafka's."""

Scalar = str | int | bool | None


class InstanceRequest(
    msgspec.Struct,
    forbid_unknown_fields=True,
    rename={
        "auto_offset_reset": "auto.offset.reset",
        "auto_commit_enable": "auto.commit.enable",
        "fetch_min_bytes": "fetch.min.bytes",
        "request_timeout_ms": "consumer.request.timeout.ms",
    },
):
    """The document."""

    name: str | None = None
    id: str | None = None
    format: str | None = None
    auto_offset_reset: Scalar = None
    auto_commit_enable: Scalar = None
    fetch_min_bytes: Scalar = None
    request_timeout_ms: Scalar = None


class InstanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one instance; None where the bridge's own setting applies."""

    name: str | None
    embedded: EmbeddedFormat
    reset_policy: str | None
    is_committing: bool | None
    fetch_min_bytes: int
    read_timeout_ms: int | None


def instance_settings(request: InstanceRequest) -> InstanceSettings:
    """The request's settings. Raises Refused (422), which names the unusable setting."""
    policy = request.auto_offset_reset
    if policy is not None and policy not in RESET_POLICIES:
        raise invalid_consumer_config(f"auto.offset.reset={policy!r}: accepted are {', '.join(RESET_POLICIES)}")
    try:
        embedded = EmbeddedFormat((request.format or "binary").lower())
    except ValueError as error:
        accepted = ", ".join(EmbeddedFormat)
        raise invalid_consumer_config(f"format={request.format!r}: accepted are {accepted}") from error
    name = request.name if request.name is not None else request.id
    if name is not None and (not name or "/" in name):
        raise invalid_consumer_config(f"name={name!r}: accepted is a name without slashes")
    fetch_min_bytes = _number("fetch.min.bytes", request.fetch_min_bytes, lowest=-1, highest=FETCH_MIN_BYTES_MAX)
    return InstanceSettings(
        name=name,
        embedded=embedded,
        reset_policy=None if policy is None else RESET_POLICIES[str(policy)],
        is_committing=_truth("auto.commit.enable", request.auto_commit_enable),
        fetch_min_bytes=-1 if fetch_min_bytes is None else fetch_min_bytes,
        read_timeout_ms=_number("consumer.request.timeout.ms", request.request_timeout_ms, lowest=0, highest=600_000),
    )


def _truth(name: str, value: Scalar) -> bool | None:
    match str(value).lower():
        case "none":
            return None
        case "true":
            return True
        case "false":
            return False
    raise invalid_consumer_config(f"{name}={value!r}: accepted are true and false")


def _number(name: str, value: Scalar, *, lowest: int, highest: int) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError as error:
        raise invalid_consumer_config(f"{name}={value!r}: accepted is a number") from error
    if not lowest <= number <= highest:
        message = f"{name}={number}: accepted is {lowest} to {highest}"
        raise Refused(422, CONSTRAINT_VIOLATED, f"Invalid consumer configuration. {message}")
    return number
