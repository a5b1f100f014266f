"""An exact link between sites whose listeners for links are secured: the mirror logs in at both
ends with a login of its own for each, and the copy is the source byte for byte.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import BROKER, BROKER_PASSWORD, jaas
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.pairs.mirror_sites import start_pair
from tests.support.processes.processes import Processes
from tests.support.processes.secured_kafka import PLAIN_MODULE, make_certificates
from tests.support.security.token_server import CLIENT, SECRET, TokenServer

TOKEN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LIFE_S = 3
pytestmark = pytest.mark.integration


@pytest.mark.parametrize("compression", [pytest.param("none", marks=pytest.mark.long), "zstd"])
async def test_a_mirror_logs_in_over_tls_at_both_ends_of_an_exact_link(
    processes: Processes, tmp_path: Path, compression: str
) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    users = 'user_reader="reads" user_writer="writes"'
    own = f'username="{BROKER}" password="{BROKER_PASSWORD}" user_{BROKER}="{BROKER_PASSWORD}"'
    site = {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,LINK:SASL_SSL",
        "inter.broker.listener.name": "LINK",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.location": str(certificates.authority),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.link.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} {users};",
    }
    mirror = {
        key: value
        for end, user, password in (("source", "reader", "reads"), ("target", "writer", "writes"))
        for key, value in {
            f"{end}.security.protocol": "SASL_SSL",
            f"{end}.ssl.truststore.location": str(certificates.authority),
            f"{end}.sasl.mechanism": "PLAIN",
            f"{end}.sasl.jaas.config": jaas("PLAIN", user, password),
            f"antipode.{end}.compression.type": compression,
        }.items()
    }
    pair = await start_pair(processes, tmp_path, settings=site)
    await pair.create("orders", 2)
    await pair.produce("orders", 0, 20, size=40_000)
    await pair.produce("orders", 1, 20)
    started = pair.start_mirror(mirror)
    await pair.caught_up("orders", 2)
    assert "could not be forwarded" not in pair.target.process.log_text()

    wrong = pair.start_mirror({**mirror, "source.sasl.jaas.config": jaas("PLAIN", "reader", "wrong")})
    await eventually(lambda: "login refused" in pair.source.process.log_text())
    assert started.is_running
    assert wrong.is_running


async def test_a_link_goes_on_with_tokens_that_are_renewed_before_they_expire(
    processes: Processes, tmp_path: Path
) -> None:
    certificates, signer = make_certificates(tmp_path / "certificates"), TokenSigner(tmp_path / "keys.json")
    own = f'username="{BROKER}" password="{BROKER_PASSWORD}" user_{BROKER}="{BROKER_PASSWORD}"'
    site = {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,LINK:SASL_SSL",
        "inter.broker.listener.name": "LINK",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.location": str(certificates.authority),
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.link.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own};",
        "listener.name.link.sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
    }
    token = tmp_path / "token"
    with TokenServer(signer, life_s=LIFE_S, sub="writer") as server:
        token.write_text(signer.token(sub="reader", exp=time.time() + LIFE_S))
        mirror = {
            **{f"{end}.security.protocol": "SASL_SSL" for end in ("source", "target")},
            **{f"{end}.ssl.truststore.location": str(certificates.authority) for end in ("source", "target")},
            **{f"{end}.sasl.mechanism": "OAUTHBEARER" for end in ("source", "target")},
            "source.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            "target.sasl.oauthbearer.token.endpoint.url": server.url,
            "target.sasl.jaas.config": f'{TOKEN_MODULE} required clientId="{CLIENT}" clientSecret="{SECRET}";',
        }
        pair = await start_pair(processes, tmp_path, settings=site)
        await pair.create("orders")
        started = pair.start_mirror(mirror)
        incoming = tmp_path / "token.incoming"

        async def is_renewed() -> bool:
            incoming.write_text(signer.token(sub="reader", exp=time.time() + LIFE_S))
            incoming.replace(token)
            await pair.produce("orders", 0, 1)
            return len(server.issued) >= 4

        await eventually(is_renewed)
        await pair.caught_up("orders", 1)
    for broker in (pair.source.process, pair.target.process):
        assert "login refused" not in broker.log_text()
        assert "its session has ended" not in broker.log_text()
    assert "could not be renewed" not in started.log_text()
