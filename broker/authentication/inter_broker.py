"""The login of a broker at other brokers, of its own site and of peer sites, with the certificates
and the login line of its own listener between brokers.

The key store of that listener is also the broker's certificate as a client, its trust store checks
other brokers' certificates, and `username` and `password` in the line of
`sasl.mechanism.inter.broker.protocol` are its user. A broker of a peer site may announce another
protocol for its listener: then the same certificates and the same user are used with that protocol,
but without TLS only if the broker's file allows plaintext.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from broker.authentication.listener_security import ListenerSecurity, listener_prefix
from broker.authentication.sasl_offers import INTER_BROKER_MECHANISM as MECHANISM
from broker.authentication.sasl_offers import JAAS, of_mechanism
from broker.metadata.core.cluster_image import ClusterImage
from runtime.addresses import HostPort
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from wire.access.settings import ALLOW_PLAINTEXT
from wire.client.client_errors import Unreachable
from wire.client.connection import ConnectionOptions
from wire.client.security import LOGIN_KEYS, ClientSecurity, SecurityProtocol, load_security

log = get_logger(__name__)

Secured = Callable[[ConnectionOptions, HostPort], ConnectionOptions]
"""The options for a connection to a broker at an address. Raises Unreachable."""


_ENCRYPTED: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


def plaintext(options: ConnectionOptions, _address: HostPort) -> ConnectionOptions:
    """A `Secured` for brokers without security."""
    return options


class InterBroker:
    """The client's side of one broker's listener between brokers."""

    def __init__(
        self, security: ListenerSecurity, image: Callable[[], ClusterImage], *, may_be_plaintext: bool = False
    ) -> None:
        """`may_be_plaintext` lets a broker whose own listener is encrypted connect without TLS."""
        self._security = security
        self._image = image
        self._may_be_plaintext = may_be_plaintext
        self._contexts: dict[SecurityProtocol, tuple[ClientSecurity, ssl.SSLContext | None]] = {}
        check_inter_broker(security)

    def secured(self, options: ConnectionOptions, address: HostPort) -> ConnectionOptions:
        """The options for a connection to this address."""
        protocol = self._protocol_at(address)
        if self._security.protocol in _ENCRYPTED and protocol not in _ENCRYPTED and not self._may_be_plaintext:
            # records, tokens and this broker's own password would cross the network in plaintext
            detail = (
                f"its listener speaks {protocol.value}, without TLS, and this broker's listener between brokers has "
                f"TLS: {ALLOW_PLAINTEXT}=true allows it"
            )
            raise Unreachable(detail, node=str(address))
        if protocol is SecurityProtocol.PLAINTEXT:
            return options
        if protocol not in self._contexts:
            try:
                found = client_security(self._security, protocol)
            except ConfigurationError as error:
                detail = f"its listener speaks {protocol.value}, and this broker has nothing to use with it ({error})"
                raise Unreachable(detail, node=str(address)) from error
            self._contexts[protocol] = (found, found.ssl_context())
        security, context = self._contexts[protocol]
        return replace(options, ssl_context=context, handshake=security.handshake())

    def read_again(self, security: ListenerSecurity) -> None:
        """The settings of a listener, or their files, have changed: new connections use them."""
        if security.name == self._security.name:
            self._security = security
            self._contexts.clear()

    def _protocol_at(self, address: HostPort) -> SecurityProtocol:
        """The security protocol that the broker at the address announces, else the protocol of the
        own listener.
        """
        image = self._image()
        brokers = [*image.brokers.values(), *(broker for view in image.peers.values() for broker in view.brokers)]
        for broker in brokers:
            for end in broker.endpoints:
                if (end.host, end.port) == (address.host, address.port) and end.security_protocol:
                    return SecurityProtocol(end.security_protocol)
        return self._security.protocol


def check_inter_broker(security: ListenerSecurity) -> None:
    """Raises ConfigurationError, with the key of the file, if the inter-broker listener lacks what
    a broker needs as a client.
    """
    if security.protocol is not SecurityProtocol.PLAINTEXT:
        try:
            client_security(security, security.protocol)
        except ConfigurationError as error:
            key = error.key if error.key == MECHANISM else listener_prefix(security.name) + error.key
            raise ConfigurationError(key, error.value, error.accepted) from error


def client_security(security: ListenerSecurity, protocol: SecurityProtocol) -> ClientSecurity:
    """The options of a client with this protocol. ConfigurationError."""
    properties = security.properties
    given: dict[str, str] = {key: value for key, value in properties.items() if key.startswith("ssl.")}
    given["security.protocol"] = protocol.value
    mechanism = properties.get(MECHANISM, "")
    if protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
        if not mechanism:
            accepted = "the mechanism by which brokers log in at each other, one of sasl.enabled.mechanisms"
            raise ConfigurationError(MECHANISM, "(not set)", accepted)
        given["sasl.mechanism"] = mechanism
        for key in LOGIN_KEYS:
            given |= {key: value} if (value := of_mechanism(properties, mechanism, key)[1]) is not None else {}
    try:
        return load_security(given)
    except ConfigurationError as error:
        if error.key == "sasl.mechanism":
            raise ConfigurationError(MECHANISM, mechanism, error.accepted) from error
        if error.key == JAAS:
            raise ConfigurationError(f"{mechanism.lower()}.{JAAS}", error.value, error.accepted) from error
        raise


def inter_broker_listener(listeners: Mapping[str, str], *, given: str, protocol: str) -> str:
    """The name of the inter-broker listener: by `inter.broker.listener.name`, by
    `security.inter.broker.protocol`, or the first listener. `listeners` is name to protocol.
    ConfigurationError.
    """
    key = "security.inter.broker.protocol"
    protocol = protocol.strip().upper()
    if not protocol:
        return given or next(iter(listeners))
    if protocol not in SecurityProtocol.__members__:
        raise ConfigurationError(key, protocol, f"accepted: {', '.join(SecurityProtocol.__members__)}")
    if given:
        if listeners.get(given) != protocol:
            accepted = f"the protocol of the listener {given}, or nothing, since inter.broker.listener.name names it"
            raise ConfigurationError(key, protocol, accepted)
        return given
    found = next((name for name, spoken in listeners.items() if spoken == protocol), None)
    if found is None:
        raise ConfigurationError(
            key, protocol, f"the protocol of a listener; listeners have {', '.join(listeners.values())}"
        )
    return found
