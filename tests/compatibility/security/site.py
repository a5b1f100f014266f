"""A site of one broker whose listeners offer every mechanism, with users, ACLs and topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from cli.credentials.authority import PRIVATE, load_authority, make_authority, write_file
from cli.embedding.layout_plan import Wishes
from cli.embedding.port_file import layout_in_directory
from runtime.configuration import read_properties
from tests.compatibility.security.credentials import Credentials, Mechanism
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.processes.ports import LOOPBACK, free_port
from wire.client.librdkafka_options import librdkafka_options
from wire.client.security import load_security

DENIED: Final = "denied"
ALLOWED: Final = "allowed"
"""The topic, group and transactional id that no client has a right to, and what names of the others
begin with.
"""
SCRAM_USER, TOKEN_USER, PARTNER = "carol", "anna", "partner"
PASSWORD: Final = "carol's own"
WITHIN_S: Final = 30
TOKEN_LIFETIME_S: Final = 3 * 3600
"""Longer than a run of all clients on a busy machine."""


class SecuredSite:
    """Where clients connect, and right and wrong credentials of each mechanism."""

    def __init__(self, sites: EmbeddedSites, directory: Path, mutual: str) -> None:
        security = sites.document["security"]
        self._sites = sites
        self._servers = {Mechanism.CERTIFICATE: mutual}
        self._authority = Path(security["ca"])
        self._directory = directory
        options = librdkafka_options(load_security(read_properties(Path(security["admin_client_config"]))))
        self.admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), **options})

    def servers(self, mechanism: Mechanism) -> str:
        """The address for clients with this login."""
        return self._servers.get(mechanism, self._sites.bootstrap("a"))

    def credentials(self, mechanism: Mechanism, *, is_right: bool) -> Credentials:
        """The user's, or a wrong password, a token and a certificate of a stranger."""
        given: dict[str, Any] = {"mechanism": mechanism, "authority": self._authority}
        kind = "right" if is_right else "wrong"
        match mechanism:
            case Mechanism.OAUTHBEARER:
                return Credentials(**given, token=self._directory / f"{kind}.jwt")
            case Mechanism.CERTIFICATE:
                return Credentials(**given, identity=self._directory / f"{kind}.pem")
            case Mechanism.PLAIN:
                user = "user"
                password = read_properties(self._sites.directory / "security" / "kafka.properties")[user]
            case _:
                user, password = SCRAM_USER, PASSWORD
        return Credentials(**given, user=user, password=password if is_right else "wrong")

    def create_topic(self, topic: str) -> None:
        """With one partition."""
        from confluent_kafka.cimpl import NewTopic

        self.admin.create_topics([NewTopic(topic, 1)])[topic].result(WITHIN_S)

    def has_topic(self, topic: str) -> bool:
        """Whether the topic exists."""
        return topic in self.admin.list_topics(timeout=WITHIN_S).topics

    def end(self, topic: str) -> int:
        """The number of records in a topic."""
        (found,) = self.admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}).values()  # type: ignore[no-untyped-call]
        return int(found.result(WITHIN_S).offset)


@contextmanager
def secured_site(directory: Path) -> Iterator[SecuredSite]:
    """Start it, with users, ACLs and the topic that is denied; end it with the block."""
    starter = SitesStarter(directory)
    place = directory / "sites-0"
    wishes = Wishes(sites=("a",), brokers=1, directory=place, has_proxy=False, has_link=False, is_secure=True)
    broker = layout_in_directory(wishes).sites[0].brokers[0]
    mutual = f"{LOOPBACK}:{free_port()}"
    signer, stranger = TokenSigner(directory / "keys.json"), TokenSigner(directory / "strangers.json")
    listeners = f"CLIENT://{broker.client},LINK://{broker.link},MUTUAL://{mutual}"
    client = "listener.name.client"
    configs = {
        "listeners": listeners,
        # all clients have one address, and those with wrong certificates try without a pause: the
        # broker would refuse the others (the listener between brokers refuses none)
        "antipode.failed.logins.max": "0",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CLIENT:SASL_SSL,LINK:SASL_SSL,MUTUAL:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        f"{client}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{client}.scram-sha-256.sasl.jaas.config": "ScramLoginModule required;",
        f"{client}.scram-sha-512.sasl.jaas.config": "ScramLoginModule required;",
        f"{client}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
    }
    overrides = [part for key, value in configs.items() for part in ("--broker-config", f"{key}={value}")]
    try:
        sites = starter("--sites", "a", "--no-link", "--no-proxy", "--secure", *overrides)
        site = SecuredSite(sites, directory, mutual)
        claims: dict[str, Any] = {"sub": TOKEN_USER, "scope": "kafka", "exp": time.time() + TOKEN_LIFETIME_S}
        (directory / "right.jwt").write_text(signer.token(**claims))
        (directory / "wrong.jwt").write_text(stranger.token(**claims))
        authorities = {"right": load_authority(place / "security"), "wrong": make_authority("strangers")}
        for kind, authority in authorities.items():
            text = authority.issue(common_name=PARTNER, uris=[], hosts=(LOOPBACK,))
            write_file(directory / f"{kind}.pem", text, mode=PRIVATE)
        _give_rights(sites, directory)
        site.create_topic(DENIED)
        yield site
    finally:
        starter.end_all()


def _give_rights(sites: EmbeddedSites, directory: Path) -> None:
    common = (
        *("--bootstrap-server", sites.bootstrap("a")),
        *("--command-config", sites.document["security"]["command_config"]),
    )
    (directory / "password").write_text(PASSWORD)
    commands: list[tuple[str, ...]] = [("users", "add", SCRAM_USER, "--password-file", str(directory / "password"))]
    for user in ("user", SCRAM_USER, TOKEN_USER, PARTNER):
        rights = ("acls", "add", "--allow-principal", f"User:{user}", "--resource-pattern-type", "prefixed")
        commands.append((*rights, "--topic", ALLOWED, "--producer"))
        commands.append((*rights, "--topic", ALLOWED, "--consumer", "--group", "reader"))
        commands.append((*rights, "--transactional-id", ALLOWED, "--operation", "Write", "--operation", "Describe"))
    for command in commands:
        answer = sites.command(*command, *common)
        assert answer.returncode == 0, answer.stdout + answer.stderr
