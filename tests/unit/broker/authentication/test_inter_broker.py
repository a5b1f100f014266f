"""A broker's connections to brokers of a peer site, which announce the protocols of their
listeners.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.authentication.inter_broker import InterBroker
from broker.authentication.listener_security import read_listener_security
from broker.metadata.core.cluster_image import ClusterImage
from runtime.addresses import HostPort
from tests.support.security.identities import Identities
from wire.client.client_errors import Unreachable
from wire.client.connection import ConnectionOptions
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, SiteView

PEER = HostPort("b1.example.org", 9093)


def inter_broker(directory: Path, *, announced: str, may_be_plaintext: bool) -> InterBroker:
    """Of a broker whose own listener is SASL_SSL, with the user `broker` of PLAIN."""
    identities = Identities(directory)
    properties = {
        "ssl.keystore.location": str(identities.issue("broker")),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.link.plain.sasl.jaas.config": 'PlainLoginModule required username="broker" password="secret";',
    }
    security = read_listener_security(properties, {"LINK": "SASL_SSL"})["LINK"]
    endpoint = Endpoint(listener="LINK", host=PEER.host, port=PEER.port, security_protocol=announced)
    view = SiteView(brokers=[BrokerInfo(node_id=2001, endpoints=[endpoint])])
    image = ClusterImage(site="a", node_id=1001, peers={"b": view})
    return InterBroker(security, lambda: image, may_be_plaintext=may_be_plaintext)


@pytest.mark.parametrize("announced", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_neither_passwords_nor_records_go_to_a_peer_in_plaintext_unless_it_is_allowed(
    tmp_path: Path, announced: str
) -> None:
    refusing = inter_broker(tmp_path, announced=announced, may_be_plaintext=False)
    with pytest.raises(Unreachable, match=rf"{announced}.*antipode\.allow\.plaintext"):
        refusing.secured(ConnectionOptions(), PEER)
    allowing = inter_broker(tmp_path, announced=announced, may_be_plaintext=True)
    assert allowing.secured(ConnectionOptions(), PEER).ssl_context is None


@pytest.mark.parametrize("announced", ["SSL", "SASL_SSL", ""])
def test_a_peer_with_another_encrypted_protocol_is_reached(tmp_path: Path, announced: str) -> None:
    options = inter_broker(tmp_path, announced=announced, may_be_plaintext=False).secured(ConnectionOptions(), PEER)
    assert options.ssl_context is not None
    assert (options.handshake is None) is (announced == "SSL")
