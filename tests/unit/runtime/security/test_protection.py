"""Protection that a file asks for and that is not there stops the start, whichever process reads
the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from bridge.config import load_bridge_settings
from broker.settings.loading import load_broker_settings
from cli.processes.controller_file import load_controller_file
from mirror.settings.config import load_config
from runtime.configuration import ConfigurationError

SITE = {
    "node.id": "3",
    "listeners": "CLIENT://h:1",
    "log.dirs": "/x",
    "zookeeper.connect": "z:1",
    "antipode.site.name": "a",
}
BRIDGE = {"bootstrap.servers": "127.0.0.1:9092"}
EXACT = {"link.name": "a-b", "site.agents": "127.0.0.1:9190"}
TRANSLATE = {
    "link.name": "a-b",
    "link.mode": "translate",
    "source.bootstrap.servers": "127.0.0.1:1",
    "target.bootstrap.servers": "127.0.0.1:2",
}

ASKED_OF_A_SITE = {
    "zookeeper.ssl.crl.enable": "true",
    "zookeeper.ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
}
Load = Callable[[Mapping[str, str]], object]
REFUSED: list[tuple[Load, Mapping[str, str], str, str]] = [
    *((load, SITE, key, value) for load in (load_broker_settings, load_controller_file) for key, value in ASKED_OF_A_SITE.items()),
    (load_bridge_settings, BRIDGE, "ssl.crl.location", "/keys/revoked"),
    (load_bridge_settings, BRIDGE, "sasl.mechanism", "PLAIN"),
    (load_bridge_settings, BRIDGE, "authentication.roles", "admin"),
    (load_bridge_settings, BRIDGE, "csrf.prevention.enable", "true"),
    (load_config, EXACT, "security.protocol", "SASL_SSL"),
    (load_config, TRANSLATE, "security.protocol", "SSL"),
    (load_config, TRANSLATE, "ssl.truststore.location", "/keys/trust.jks"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("load", "given", "key", "value"), REFUSED, ids=[f"{load.__name__}-{key}" for load, _, key, _ in REFUSED]
)
def test_protection_that_is_not_there_is_refused_by_its_key(
    load: Load, given: Mapping[str, str], key: str, value: str
) -> None:
    load(given)
    with pytest.raises(ConfigurationError) as refused:
        load({**given, key: value})
    assert refused.value.key == key
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("load", "given", "harmless"),
    [
        (
            load_broker_settings,
            SITE,
            {
                "security.inter.broker.protocol": "PLAINTEXT",
                "ssl.client.auth": "none",
                "ssl.keystore.location": " ",
                "zookeeper.ssl.client.enable": "false",
                "connections.max.reauth.ms": "0",
            },
        ),
        (load_bridge_settings, BRIDGE, {"authentication.method": "NONE", "client.security.protocol": "PLAINTEXT"}),
        (load_config, EXACT, {"source.security.protocol": "SSL", "target.security.protocol": "PLAINTEXT"}),
        (load_config, TRANSLATE, {"source.security.protocol": "SSL", "target.security.protocol": "SSL"}),
    ],
)
def test_settings_that_ask_for_nothing_or_for_available_protection_pass(
    load: Load, given: Mapping[str, str], harmless: Mapping[str, str]
) -> None:
    load({**given, **harmless})
