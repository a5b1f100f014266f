"""keytool's stores, compared with keytool's own listing; stores of other programs; wrong passwords;
files that are not stores, or damaged.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    load_der_private_key,
    pkcs12,
)
from cryptography.x509 import load_der_x509_certificate
from cryptography.x509.oid import NameOID

from tests.support.processes.java_key_stores import ASCII_PASSWORD, FORMATS, SERVER, JavaKeyStores, certificate_file
from wire.tls.core.entries import KeyStore, StoredKey, UnusableStore, WrongPassword
from wire.tls.core.java_key_store import unlocked
from wire.tls.core.reading import Format, format_of, read_key_store


def exported(store: Path) -> bytes:
    """A certificate as keytool exports it."""
    return base64.b64decode(certificate_file(store).read_text(encoding="ascii").split("-----")[2])


def is_key_of(key: StoredKey, password: str) -> bool:
    """Whether the private key is that of its certificate."""
    opened = load_der_private_key(unlocked(key.key, password) if key.is_locked else key.key, None)
    return opened.public_key() == load_der_x509_certificate(key.chain[0]).public_key()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_key_and_its_certificate_are_those_that_keytool_made(java_key_stores: JavaKeyStores, kind: str) -> None:
    path = java_key_stores.identities[kind]
    store_password, key_password = java_key_stores.passwords(kind)
    store = read_key_store(path.read_bytes(), store_password)
    (key,) = [key for key in store.keys if key.alias == kind]
    assert key.chain == (exported(path),)
    assert is_key_of(key, key_password)
    assert set(store.anchors) == {key.chain[0] for key in store.keys}, "a key's own certificate is trusted, as in Java"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_trust_store_has_the_certificate_that_keytool_imported(java_key_stores: JavaKeyStores, kind: str) -> None:
    data = java_key_stores.trust[kind].read_bytes()
    expected = KeyStore(keys=(), certificates=(exported(java_key_stores.identities[SERVER]),))
    assert read_key_store(data, java_key_stores.passwords(kind)[0]) == expected
    assert format_of(data) is (Format.JKS if kind == "jks" else Format.PKCS12)


def test_a_store_without_a_password_is_read_as_in_java(java_key_stores: JavaKeyStores) -> None:
    expected = KeyStore(keys=(), certificates=(exported(java_key_stores.identities[SERVER]),))
    assert read_key_store(java_key_stores.trust["jks"].read_bytes(), None) == expected
    assert read_key_store(java_key_stores.trust_without_password.read_bytes(), None) == expected
    assert read_key_store(java_key_stores.trust_without_password.read_bytes(), "anything") == expected
    with pytest.raises(WrongPassword, match="no password is given"):
        read_key_store(java_key_stores.trust["pkcs12"].read_bytes(), None)


def test_trusted_certificates_may_stand_beside_a_key(java_key_stores: JavaKeyStores) -> None:
    store = read_key_store(java_key_stores.both.read_bytes(), ASCII_PASSWORD)
    peer, own = (exported(java_key_stores.identities[kind]) for kind in ("jks", SERVER))
    assert store.certificates == (peer,)
    assert [key.chain for key in store.keys] == [(own,)]
    assert store.anchors == (peer, own)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_wrong_password_is_distinguished_from_a_damaged_file(java_key_stores: JavaKeyStores, kind: str) -> None:
    store_password, key_password = java_key_stores.passwords(kind)
    data = java_key_stores.identities[kind].read_bytes()
    for wrong in ("", "changeit", store_password + " "):
        with pytest.raises(WrongPassword, match="password is wrong"):
            read_key_store(data, wrong)
    for cut in (0, 1, 4, 11, 31, len(data) // 2, len(data) - 1):
        with pytest.raises(UnusableStore) as refused:
            read_key_store(data[:cut], store_password)
        assert not isinstance(refused.value, WrongPassword) or kind != "jks"
    for key in read_key_store(data, store_password).keys:
        assert key.is_locked == (kind == "jks"), "PKCS12 has one password for all"
        for wrong in ("", store_password + " ", key_password[:-1]) if key.is_locked else ():
            with pytest.raises(WrongPassword):
                unlocked(key.key, wrong)


def made_by_others(
    stores: JavaKeyStores, encryption: KeySerializationEncryption, above: Sequence[x509.Certificate] = ()
) -> bytes:
    """PKCS12 of the server's key without names for certificates, as openssl makes it."""
    data = stores.identities[SERVER].read_bytes()
    key, certificate, _ = pkcs12.load_key_and_certificates(data, ASCII_PASSWORD.encode())
    assert isinstance(key, pkcs12.PKCS12PrivateKeyTypes)
    return pkcs12.serialize_key_and_certificates(b"theirs", key, certificate, above, encryption)


def test_stores_of_other_programs_are_read(java_key_stores: JavaKeyStores) -> None:
    stranger = load_der_x509_certificate(exported(java_key_stores.identities["jks"]))
    data = made_by_others(java_key_stores, BestAvailableEncryption("pässword".encode()), [stranger])
    store = read_key_store(data, "pässword")
    assert [key.alias for key in store.keys] == ["theirs"]
    assert is_key_of(store.keys[0], "pässword")
    own = exported(java_key_stores.identities[SERVER])
    assert store.keys[0].chain == (own,), "what did not issue it does not belong to it"
    assert store.certificates == (exported(java_key_stores.identities["jks"]),)


def signed(name: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    today = dt.datetime.now(dt.UTC)
    subject, above = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, issuer))
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=above, public_key=key.public_key())
    builder = builder.serial_number(1).not_valid_before(today).not_valid_after(today + dt.timedelta(days=1))
    return builder.sign(by, SHA256())


@pytest.mark.parametrize("is_imported", [False, True])
def test_an_authority_above_the_key_is_trusted_only_if_it_was_imported_for_itself(is_imported: bool) -> None:
    root, middle, leaf = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    top, between, own = (
        signed("root", root, "root", root),
        signed("middle", middle, "root", root),
        signed("leaf", leaf, "middle", middle),
    )
    imported = [pkcs12.PKCS12Certificate(top, b"caroot")] if is_imported else []
    data = pkcs12.serialize_key_and_certificates(b"leaf", leaf, own, [top, between, *imported], NoEncryption())
    store = read_key_store(data, None)
    der = [one.public_bytes(Encoding.DER) for one in (own, between, top)]
    assert [key.chain for key in store.keys] == [tuple(der)]
    assert store.anchors == ((der[2],) if is_imported else ()) + (der[0],)


def test_a_store_may_have_no_locks_at_all(java_key_stores: JavaKeyStores) -> None:
    store = read_key_store(made_by_others(java_key_stores, NoEncryption()), None)
    assert is_key_of(store.keys[0], "whatever")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"clusters = a, b", "none of these"),
        (bytes.fromhex("cececece0000000200000001"), "JCEKS.*keytool -importkeystore .* -srcstoretype JCEKS"),
        (bytes.fromhex("feedfeed00000003") + bytes(40), "version 1 or 2"),
        (bytes.fromhex("feedfeed00000002ffffffff") + bytes(60), "kind 0"),
        (bytes.fromhex("feedfeed0000000200000001") + bytes.fromhex("00000002ffff") + bytes(60), "ends"),
        (bytes.fromhex("feedfeed0000000200000000") + bytes(24), "4 bytes follow"),
        (b"\x30\x03\x02\x01\x03", "PKCS12"),
    ],
)
def test_bytes_that_are_no_store_are_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(UnusableStore, match=said):
        read_key_store(data, None)


def test_a_bare_certificate_is_no_store(java_key_stores: JavaKeyStores) -> None:
    with pytest.raises(UnusableStore):
        read_key_store(exported(java_key_stores.identities[SERVER]), None)
