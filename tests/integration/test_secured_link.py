"""An exact link between sites whose listeners for links are secured: the mirror logs in at both
ends with a login of its own for each, and the copy is the source byte for byte.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import BROKER, BROKER_PASSWORD, jaas
from tests.support.pairs.mirror_sites import start_pair
from tests.support.processes.processes import Processes
from tests.support.processes.secured_kafka import PLAIN_MODULE, make_certificates

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.mark.parametrize("compression", ["none", "zstd"])
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
