"""TLS options with real stores: handshakes in memory, and errors that name the option and the file
and nothing secret.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from runtime.configuration import ConfigurationError
from tests.support.processes.java_key_stores import (
    ASCII_PASSWORD,
    KEY_PASSWORD,
    SERVER,
    STORE_PASSWORD,
    JavaKeyStores,
    certificate_file,
)
from tests.support.processes.ports import LOOPBACK
from wire.client.security import ClientSecurity, load_security
from wire.tls.core.reading import read_key_store

TLS = {"security.protocol": "SSL"}


def server_pem(stores: JavaKeyStores, password: str = "") -> tuple[str, str]:
    """The server's key and certificate, as another reader has them."""
    key, certificate, _ = pkcs12.load_key_and_certificates(
        stores.identities[SERVER].read_bytes(), ASCII_PASSWORD.encode()
    )
    assert key is not None
    assert certificate is not None
    lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock).decode()
    return private, certificate.public_bytes(Encoding.PEM).decode()


@pytest.fixture
def server(java_key_stores: JavaKeyStores, tmp_path: Path) -> ssl.SSLContext:
    """A server's context that demands a certificate of any of the identities."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    file = tmp_path / "server.pem"
    file.write_text("".join(server_pem(java_key_stores)), encoding="ascii")
    context.load_cert_chain(file)
    for path in java_key_stores.identities.values():
        context.load_verify_locations(certificate_file(path))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def who_came(server: ssl.SSLContext, security: ClientSecurity) -> str:
    """Shakes hands in memory; returns the name in the client's certificate, empty if it showed
    none.
    """
    context = security.ssl_context()
    assert context is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_client, to_server, server_hostname=LOOPBACK)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                assert to_server.pending or to_client.pending or len(waiting) > 1
    shown = theirs.getpeercert() or {}
    return {name: value for part in shown.get("subject", ()) for name, value in part}.get("commonName", "")


def options_of(stores: JavaKeyStores, kind: str, *, name: str = "") -> dict[str, str]:
    """Key store and trust store of one format, under the name of another one if asked for."""
    store_password, key_password = stores.passwords(kind)
    given = {
        **TLS,
        "ssl.truststore.location": str(stores.trust[kind]),
        "ssl.truststore.password": store_password,
        "ssl.keystore.location": str(stores.identities[kind]),
        "ssl.keystore.password": store_password,
    }
    if key_password != store_password:
        given["ssl.key.password"] = key_password
    return given | ({"ssl.truststore.type": name, "ssl.keystore.type": name} if name else {})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("jks", ""),
        ("pkcs12", ""),
        ("legacy", ""),
        ("jks", "JKS"),
        ("jks", "PKCS12"),
        ("pkcs12", "JKS"),
        ("pkcs12", "pkcs12"),
    ],
)
def test_a_client_with_java_s_stores_is_let_in_whatever_the_format_is_called(
    java_key_stores: JavaKeyStores, server: ssl.SSLContext, kind: str, name: str
) -> None:
    assert who_came(server, load_security(options_of(java_key_stores, kind, name=name))) == kind


def test_of_several_keys_the_first_is_shown(java_key_stores: JavaKeyStores, server: ssl.SSLContext) -> None:
    store = read_key_store(java_key_stores.two_keys.read_bytes(), ASCII_PASSWORD)
    assert [key.alias for key in store.keys] == ["first"]
    server.load_verify_locations(cadata=store.keys[0].chain[0])
    given = options_of(java_key_stores, SERVER) | {"ssl.keystore.location": str(java_key_stores.two_keys)}
    assert who_came(server, load_security(given)) == "first"


def test_pem_stands_in_files_or_in_the_options_themselves(
    java_key_stores: JavaKeyStores, server: ssl.SSLContext, tmp_path: Path
) -> None:
    key, certificate = server_pem(java_key_stores, password="of the key")
    (tmp_path / "client.pem").write_text(key + certificate, encoding="ascii")
    (tmp_path / "trusted.pem").write_text(certificate, encoding="ascii")
    files = {
        "ssl.truststore.location": str(tmp_path / "trusted.pem"),
        "ssl.keystore.location": str(tmp_path / "client.pem"),
    }
    in_line = {
        "ssl.truststore.certificates": certificate.replace("\n", "\\n"),
        "ssl.keystore.key": key.replace("\n", " "),
        "ssl.keystore.certificate.chain": certificate,
    }
    for given in (files, in_line):
        for types in ({}, {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}):
            security = load_security({**TLS, **given, **types, "ssl.key.password": "of the key"})
            assert who_came(server, security) == SERVER


def test_a_trusted_certificate_need_not_have_signed_itself(tmp_path: Path) -> None:
    """Java trusts whatever a trust store holds; OpenSSL by itself asks for the authority above
    it.
    """
    authority, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    today = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leaf")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
        .public_key(leaf.public_key())
        .serial_number(1)
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), critical=False)
        .sign(authority, SHA256())
        .public_bytes(Encoding.PEM)
    )
    private = leaf.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "leaf.pem").write_bytes(private + certificate)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "leaf.pem")
    given = {"ssl.truststore.certificates": certificate.decode()}
    assert who_came(server, load_security({**TLS, **given})) == ""


def test_no_key_stays_behind_in_the_process(java_key_stores: JavaKeyStores) -> None:
    before = os.listdir("/proc/self/fd")
    assert load_security(options_of(java_key_stores, "jks")).ssl_context() is not None
    assert os.listdir("/proc/self/fd") == before


def test_stores_are_not_opened_where_there_is_no_tls() -> None:
    given = {"ssl.truststore.location": "/nowhere/trust.jks", "ssl.keystore.password": "x"}
    assert load_security({**given, "security.protocol": "PLAINTEXT"}).ssl_context() is None


def test_a_server_that_the_store_does_not_know_is_refused(
    java_key_stores: JavaKeyStores, server: ssl.SSLContext
) -> None:
    given = {
        **TLS,
        "ssl.truststore.location": str(java_key_stores.identities["legacy"]),
        "ssl.truststore.password": ASCII_PASSWORD,
    }
    with pytest.raises(ssl.SSLCertVerificationError):
        who_came(server, load_security(given))


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({"ssl.truststore.password": "wrong, wrong"}, "ssl.truststore.password", "trust.jks"),
        ({"ssl.keystore.password": "wrong, wrong"}, "ssl.keystore.password", "identity.jks"),
        ({"ssl.key.password": "wrong, wrong"}, "ssl.key.password", "identity.jks"),
        ({"ssl.key.password": None}, "ssl.key.password", "if it is not set, that of the store"),
        ({"ssl.keystore.password": None}, "ssl.keystore.password", "identity.jks"),
        ({"ssl.truststore.location": "/nowhere/trust.jks"}, "ssl.truststore.location", "No such file"),
        ({"ssl.keystore.location": "/"}, "ssl.keystore.location", "directory"),
        ({"ssl.truststore.location": __file__}, "ssl.truststore.location", "JKS, PKCS12 or PEM"),
        ({"ssl.truststore.location": None}, "ssl.truststore.location", "ssl.truststore.password"),
        ({"ssl.keystore.location": None}, "ssl.keystore.location", "ssl.keystore.password"),
        ({"ssl.truststore.type": "PEM"}, "ssl.truststore.type", "JKS, which"),
        ({"ssl.keystore.type": "JCEKS"}, "ssl.keystore.type", "keytool -importkeystore"),
        ({"ssl.truststore.certificates": "x"}, "ssl.truststore.location", "none, since"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.location", "none, since"),
    ],
)
def test_unusable_settings_are_named_and_nothing_secret_is_repeated(
    java_key_stores: JavaKeyStores, change: dict[str, str | None], key: str, said: str
) -> None:
    given = {
        name: value for name, value in {**options_of(java_key_stores, "jks"), **change}.items() if value is not None
    }
    with pytest.raises(ConfigurationError, match=said) as refused:
        load_security(given)
    assert refused.value.key == key
    assert not [secret for secret in (STORE_PASSWORD, KEY_PASSWORD, "wrong, wrong") if secret in str(refused.value)]
