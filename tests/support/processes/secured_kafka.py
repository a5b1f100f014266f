"""An Apache Kafka whose clients come over TLS and log in, with a plain listener beside it for the
test itself.

Certificates are made by openssl for each broker, so that none lies in the repository;
`make_certificates` skips where it is not installed.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.apache_kafka import ApacheKafkaServer
from tests.support.processes.apache_kafka import FEW_PARTITIONS, READY_WITHIN_MS
from tests.support.processes.java_key_stores import FORMATS, import_certificate, keytool
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Proxy, Toxiproxy

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER, PASSWORD = "mirror", "it's a secret, really"
STORE_PASSWORD, KEY_PASSWORD = "of-the-store", "of-the-key"
ADMIN = "User:ANONYMOUS"
"""The principal on the plain listener."""
# three RSA keys of 2048 bits take a second, and these are made for many tests
NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
GUEST, GUEST_PASSWORD = "guest", "may do what it is given"
"""The user who logs in by PLAIN, and has only the rights that a test grants."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate, and a key with its certificate for the broker and for
    a client.
    """

    authority: Path
    broker: Path
    client: Path


@dataclass(frozen=True, slots=True)
class ClientStores:
    """The PEM files of a client in the form for Java clients: a trust store, and the key with its
    chain in JKS and in PKCS12.
    """

    trust: Path
    jks: Path
    pkcs12: Path


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """Its plain and secured addresses, and the certificates that a client needs."""

    plain: str
    secured: str
    certificates: Certificates
    line: Proxy | None
    """The proxy in front of the secured listener, if toxiproxy runs."""

    def guest(self, end: str) -> dict[str, str]:
        """Settings of a mirror that is the guest at one of its ends."""
        login = f'{PLAIN_MODULE} required username="{GUEST}" password="{GUEST_PASSWORD}";'
        return {**self.client(end, mechanism="PLAIN"), f"{end}.sasl.jaas.config": login}

    def client(self, end: str, *, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """Settings of a mirror for one of its ends."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        return {
            f"{end}.security.protocol": "SASL_SSL",
            f"{end}.ssl.truststore.location": str(self.certificates.authority),
            f"{end}.ssl.keystore.location": str(self.certificates.client),
            f"{end}.sasl.mechanism": mechanism,
            f"{end}.sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        }


def make_certificates(directory: Path) -> Certificates:
    """An authority, and the certificates that it signed for a broker on loopback and for a client.
    Skips the test without openssl.
    """
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    directory.mkdir(parents=True)
    _openssl(directory, f"req -x509 {NEW_KEY} -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem")
    (directory / "names").write_text(f"subjectAltName=IP:{LOOPBACK}\n", encoding="ascii")
    for name in ("broker", "client"):
        _openssl(directory, f"req {NEW_KEY} -nodes -subj /CN={name} -keyout {name}.key -out {name}.request")
        _openssl(
            directory,
            f"x509 -req -in {name}.request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.crt",
        )
        whole = (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        (directory / f"{name}.pem").write_text(whole)
    return Certificates(directory / "ca.pem", directory / "broker.pem", directory / "client.pem")


def make_client_stores(certificates: Certificates) -> ClientStores:
    """Make a client's stores by keytool, all with STORE_PASSWORD; the key in JKS has KEY_PASSWORD.
    Skips the test without keytool.
    """
    directory = certificates.authority.parent
    stores = ClientStores(directory / "trust.jks", directory / "client.jks", directory / "client.p12")
    password = f"-passout pass:{STORE_PASSWORD}"
    _openssl(directory, f"pkcs12 -export -in client.pem -certfile ca.pem -name client -out client.p12 {password}")
    passwords = ("-srcstorepass", STORE_PASSWORD, "-deststorepass", STORE_PASSWORD, "-destkeypass", KEY_PASSWORD)
    places = ("-srckeystore", str(stores.pkcs12), "-destkeystore", str(stores.jks), "-srcalias", "client")
    keytool("-importkeystore", *places, *passwords, "-deststoretype", "JKS")
    import_certificate(stores.trust, "authority", certificates.authority, STORE_PASSWORD, FORMATS["jks"])
    return stores


def start_secured_kafka(processes: Processes, directory: Path, toxiproxy: Toxiproxy | None = None) -> SecuredKafka:
    """A broker with an authorizer: a plain listener whose users may do everything, one with
    SASL_SSL that wants certificates.
    """
    certificates = make_certificates(directory / "certificates")
    port, controller_port, secured_port = free_ports(3)
    secured = f"{LOOPBACK}:{secured_port}"
    line = toxiproxy.create("secured", secured) if toxiproxy else None
    advertised = line.address if line else secured
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL"
    listener = "listener.name.secured"
    settings = {
        **FEW_PARTITIONS,
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},SECURED://{secured},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},SECURED://{advertised}",
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"{ADMIN};User:{USER}",
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": str(certificates.broker),
        f"{listener}.ssl.truststore.type": "PEM",
        f"{listener}.ssl.truststore.location": str(certificates.authority),
        f"{listener}.ssl.client.auth": "required",
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}" user_{GUEST}="{GUEST_PASSWORD}";',
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    server = ApacheKafkaServer(
        name="kafka", directory=directory, port=port, controller_port=controller_port, settings=settings
    )
    server.format()
    processes.run(server.child()).wait_ready(server.is_serving, READY_WITHIN_MS)
    _add_scram_users(server.bootstrap_servers)
    return SecuredKafka(server.bootstrap_servers, advertised, certificates, line)


def _add_scram_users(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for outcome in admin.alter_user_scram_credentials([wanted]).values():
            outcome.result(120)


def _openssl(directory: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=directory, check=True, capture_output=True)
