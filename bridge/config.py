"""The bridge's settings, from a properties file: the names that the Kafka REST proxy has for them,
and a few of our own.

`producer.<name>` and `consumer.<name>` (and `client.<name>` for both) that are not among the names
below are passed to librdkafka unchanged; Java's spellings of the common ones are translated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from pydantic import Field, field_validator, model_validator

from runtime.addresses import HostPort, parse_host_port, parse_host_ports
from runtime.configuration import ConfigurationError, Settings, load_settings
from runtime.security.protection import check_bridge_protection
from wire.identity.core.failed_logins import (
    DELAY_MS,
    DELAY_MS_KEY,
    FAILURES_MAX_KEY,
    WINDOW_MS,
    WINDOW_MS_KEY,
)
from wire.tls.settings import HIDDEN

_MIB = 1024 * 1024
WRONG_PASSWORDS_MAX = 100
"""Less than at a broker: each check costs a tenth of a second of one core by design, and passwords
that were right before are accepted all the while.
"""
_SECURITY = ("security.", "sasl.", "ssl.", "https.", "enable.sasl.", "enable.ssl.")
_SECRET = re.compile(r"password|secret|jaas|key\.pem")

JAVA_NAMES = {
    "buffer.memory": None,  # `producer.buffer.memory` is the bridge's own bound
    "max.request.size": "message.max.bytes",
    "max.block.ms": None,
    "delivery.timeout.ms": "message.timeout.ms",
    "max.poll.records": None,
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "default.api.timeout.ms": None,
    "key.serializer": None,
    "value.serializer": None,
    "key.deserializer": None,
    "value.deserializer": None,
}
"""librdkafka's names of Java clients' properties; None for a property without a meaning here."""

CLIENT_KINDS = ("producer", "consumer", "admin")


class BridgeSettings(Settings):
    """Settings of one bridge."""

    bootstrap_servers: tuple[HostPort, ...] = Field(
        alias="bootstrap.servers", description="host:port[,host:port...]; name brokers of both sites of a link"
    )
    listeners: tuple[HostPort, ...] = Field(
        default=(HostPort("127.0.0.1", 8082),),
        alias="listeners",
        description="http://host:port[,http://host:port...], or all https",
    )
    is_encrypted: bool = Field(default=False, description="whether listeners are https")
    kafka_users_max: int = Field(
        default=32,
        alias="antipode.impersonation.users.max",
        ge=1,
        description="Kafka users that act for HTTP clients at one time, 1 or more",
    )
    kafka_user_idle_ms: int = Field(
        default=300_000,
        alias="antipode.impersonation.idle.ms",
        ge=100,
        description="life of an unused Kafka user, 100 ms or more",
    )
    failed_logins_max: int = Field(
        default=WRONG_PASSWORDS_MAX,
        alias=FAILURES_MAX_KEY,
        ge=0,
        description="wrong passwords of one address within the window before more are refused, 0 no limit",
    )
    failed_logins_window_ms: int = Field(
        default=WINDOW_MS,
        alias=WINDOW_MS_KEY,
        ge=1,
        description="how long wrong passwords count, and an address is refused; 1 ms or more",
    )
    failed_login_delay_ms: int = Field(
        default=DELAY_MS,
        alias=DELAY_MS_KEY,
        ge=0,
        description="time after which a wrong login is answered, 0 ms or more",
    )
    advertised: str = Field(
        default="",
        alias="advertised.listeners",
        pattern=r"^(https?://[^,/]+)?$",
        description="http://host:port that clients reach, for the links in answers; empty: the address to which the request was sent",
    )
    id: str = Field(default="", alias="id", pattern=r"^[A-Za-z0-9._-]*$", description="letters, digits, . _ -")
    client_id: str = Field(default="antipode-bridge", alias="client.id", min_length=1, description="a client id")
    request_bytes_max: int = Field(
        default=16 * _MIB, alias="antipode.request.max.bytes", ge=1024, description="bytes of one body, 1024 or more"
    )
    record_bytes_max: int = Field(
        default=2 * _MIB,
        alias="antipode.record.max.bytes",
        ge=1024,
        description="bytes of one document of a stream of records, 1024 or more",
    )
    bodies_bytes_max: int = Field(
        default=128 * _MIB,
        alias="antipode.requests.max.bytes",
        ge=1024,
        description="bytes of all bodies at one time, 1024 or more",
    )
    connections_max: int = Field(
        default=1000, alias="antipode.connections.max", ge=1, description="connections at one time, 1 or more"
    )
    client_timeout_ms: int = Field(
        default=30_000,
        alias="antipode.client.timeout.ms",
        ge=100,
        description="how long a client may take to send a head, to send a body, or to take an answer; 100 ms or more",
    )
    idle_timeout_ms: int = Field(
        default=30_000, alias="idle.timeout.ms", ge=100, description="life of an idle connection, 100 ms or more"
    )
    shutdown_timeout_ms: int = Field(
        default=10_000, alias="shutdown.graceful.ms", ge=0, description="for running requests at a stop, 0 ms or more"
    )
    buffer_bytes: int = Field(
        default=32 * _MIB,
        alias="producer.buffer.memory",
        ge=1024,
        description="bytes of records that wait for their acknowledgement, 1024 or more",
    )
    block_ms_max: int = Field(
        default=60_000,
        alias="producer.max.block.ms",
        ge=0,
        description="how long a request waits for room in the buffer, 0 ms or more",
    )
    stream_records_max: int = Field(
        default=1000,
        alias="antipode.stream.max.records",
        ge=1,
        description="records of one stream that wait for their acknowledgement, 1 or more",
    )
    produce_requests_per_second: int = Field(
        default=0, alias="api.v3.produce.rate.limit.max.requests.per.sec", ge=0, description="records, 0 no limit"
    )
    produce_bytes_per_second: int = Field(
        default=0, alias="api.v3.produce.rate.limit.max.bytes.per.sec", ge=0, description="bytes, 0 no limit"
    )
    instances_max: int = Field(
        default=200, alias="antipode.consumer.instances.max", ge=1, description="consumer instances, 1 or more"
    )
    instance_timeout_ms: int = Field(
        default=300_000,
        alias="consumer.instance.timeout.ms",
        ge=100,
        description="life of an unused instance, 100 ms or more",
    )
    read_timeout_ms: int = Field(
        default=1000,
        alias="consumer.request.timeout.ms",
        ge=0,
        le=600_000,
        description="longest time to gather records for an answer, 0 to 600000 ms",
    )
    read_bytes_max: int = Field(
        default=64 * _MIB,
        alias="consumer.request.max.bytes",
        ge=1,
        description="bytes of keys and values in an answer, 1 or more",
    )
    prefetch_bytes: int = Field(
        default=4 * _MIB,
        alias="antipode.consumer.prefetch.bytes",
        ge=1024,
        description="bytes that an instance holds ready, 1024 or more",
    )
    admin_timeout_ms: int = Field(
        default=15_000,
        alias="antipode.admin.timeout.ms",
        ge=100,
        description="for an answer of a broker, 100 ms or more",
    )
    metrics_listener: HostPort | None = Field(
        default=None, alias="antipode.metrics.listener", description="host:port, or empty for none"
    )
    producer_properties: dict[str, str] = Field(
        default_factory=dict, description="properties for librdkafka's producer"
    )
    consumer_properties: dict[str, str] = Field(
        default_factory=dict, description="properties for librdkafka's consumers"
    )
    admin_properties: dict[str, str] = Field(
        default_factory=dict, description="properties for librdkafka's admin client"
    )

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        if isinstance(value, str):
            return parse_host_ports(value.replace("PLAINTEXT://", ""))
        return value

    @field_validator("listeners", mode="before")
    @classmethod
    def _listeners(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        items = [item.strip() for item in value.split(",") if item.strip()]
        schemes = {item.partition("://")[0] for item in items}
        if not items or schemes not in ({"http"}, {"https"}):
            raise ValueError("a list of http://host:port, or one of https://host:port")
        return tuple(parse_host_port(item.partition("://")[2]) for item in items)

    @field_validator("metrics_listener", mode="before")
    @classmethod
    def _listener(cls, value: object) -> object:
        if isinstance(value, str):
            return parse_host_port(value) if value.strip() else None
        return value

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        if self.bodies_bytes_max < self.request_bytes_max:
            raise ConfigurationError(
                "antipode.requests.max.bytes", self.bodies_bytes_max, "antipode.request.max.bytes or more"
            )
        return self

    def with_options(self, options: Mapping[str, str]) -> Self:
        """The same settings, overridden by other options of Kafka clients."""
        update = {
            f"{kind}_properties": {
                **getattr(self, f"{kind}_properties"),
                **_passed_on(options, ("client.", f"{kind}."), set()),
            }
            for kind in CLIENT_KINDS
        }
        return self.model_copy(update=update)

    @property
    def scheme(self) -> str:
        """http or https."""
        return "https" if self.is_encrypted else "http"

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers in librdkafka's form."""
        return ",".join(map(str, self.bootstrap_servers))


def load_bridge_settings(properties: Mapping[str, str]) -> BridgeSettings:
    """Settings from properties. Raises ConfigurationError for an invalid setting, and for a
    property that librdkafka does not know.
    """
    check_bridge_protection(properties)
    is_encrypted = properties.get("listeners", "").strip().startswith("https://")
    own = {field.alias for field in BridgeSettings.model_fields.values()}
    passed = {kind: _passed_on(properties, ("client.", f"{kind}."), own) for kind in CLIENT_KINDS}
    settings = load_settings(
        BridgeSettings,
        {
            **properties,
            "is_encrypted": is_encrypted,
            **{f"{kind}_properties": dict(given) for kind, given in passed.items()},
        },
    )
    return checked_options(settings)


def _passed_on(properties: Mapping[str, str], prefixes: tuple[str, ...], own: set[str | None]) -> dict[str, str]:
    """The properties under the prefixes, by librdkafka's names; a later prefix overrides an earlier
    one.
    """
    found: dict[str, str] = {}
    for prefix in prefixes:
        for key, value in properties.items():
            if key.startswith(prefix) and key not in own:
                name = key.removeprefix(prefix)
                known = JAVA_NAMES.get(name, name)
                if known is not None:
                    found[known] = value
    return found


def checked_options(
    settings: BridgeSettings, *, prefix: str = "", known: set[tuple[str, ...]] | None = None
) -> BridgeSettings:
    """The same settings, whose options librdkafka accepts: to check them, a producer and consumers
    are created without connecting, since only librdkafka knows all its options. `known` has the
    options that were checked before, and the new ones are added to it. ConfigurationError repeats
    nothing secret.
    """
    from confluent_kafka import Consumer, KafkaException, Producer

    checked: set[tuple[str, ...]] = set() if known is None else known
    producing = ("producer", settings.producer_properties, Producer)
    consuming = (
        "consumer",
        settings.consumer_properties,
        lambda given: Consumer({"group.id": "check", **given}).close(),
    )
    for kind, options, make in (producing, consuming):
        # Options of security are checked together: SASL alone would require a mechanism that is not
        # given.
        security = {name: value for name, value in options.items() if name.startswith(_SECURITY)}
        for group in (security, *({name: value} for name, value in options.items() if name not in security)):
            subject = (kind, *(f"{name}={'' if _is_free(name) else value}" for name, value in sorted(group.items())))
            if subject in checked:
                continue
            try:
                make({**group, "log_level": 0})
            except (KafkaException, ValueError, TypeError) as error:
                reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
                name = next((name for name in group if f'"{name}"' in reason), next(iter(group)))
                shown = HIDDEN if _is_free(name) else group[name]
                raise ConfigurationError(f"{prefix}{kind}.{name}", shown, reason) from None
            checked.add(subject)
    return settings


def _is_free(name: str) -> bool:
    """True if the option accepts any text; such values are names and secrets."""
    return name == "sasl.username" or _SECRET.search(name) is not None
