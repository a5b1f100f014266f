"""A key store that was changed or cut anywhere is read as it was or refused, and nothing else
happens.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.configuration import ConfigurationError
from tests.support.examples import examples
from tests.support.processes.java_key_stores import JavaKeyStores
from wire.client.security import load_security
from wire.tls.core.entries import UnusableStore
from wire.tls.core.java_key_store import unlocked
from wire.tls.core.reading import read_key_store

PLACES = st.floats(0, 1, exclude_max=True)
FLIPS = st.integers(1, 255)


def flipped(data: bytes, place: float, flip: int) -> bytes:
    """The bytes with one of them changed."""
    at = int(place * len(data))
    return data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]


@given(place=PLACES, flip=FLIPS)
def test_a_changed_store_is_the_same_one_or_refused(java_key_stores: JavaKeyStores, place: float, flip: int) -> None:
    password = java_key_stores.passwords("jks")[0]
    for store in (java_key_stores.trust["jks"], java_key_stores.identities["jks"]):
        data = store.read_bytes()
        with contextlib.suppress(UnusableStore):
            assert read_key_store(flipped(data, place, flip), password) == read_key_store(data, password)


@given(kind=st.sampled_from(("jks", "pkcs12")), place=PLACES)
def test_a_store_that_was_cut_is_refused(java_key_stores: JavaKeyStores, kind: str, place: float) -> None:
    data = java_key_stores.identities[kind].read_bytes()
    for password in (java_key_stores.passwords(kind)[0], None):
        with pytest.raises(UnusableStore):
            read_key_store(data[: int(place * len(data))], password)


@given(place=PLACES, flip=FLIPS)
def test_a_changed_lock_gives_no_other_key(java_key_stores: JavaKeyStores, place: float, flip: int) -> None:
    store_password, key_password = java_key_stores.passwords("jks")
    (key, *_) = read_key_store(java_key_stores.identities["jks"].read_bytes(), store_password).keys
    with contextlib.suppress(UnusableStore):
        assert unlocked(flipped(key.key, place, flip), key_password) == unlocked(key.key, key_password)


@given(data=st.binary(max_size=200), head=st.sampled_from((b"", b"\x30\x80", b"\xfe\xed\xfe\xed\0\0\0\x02")))
def test_bytes_of_any_kind_are_no_store(data: bytes, head: bytes) -> None:
    for password in (None, "x"):
        with contextlib.suppress(UnusableStore):
            assert not read_key_store(head + data, password).anchors


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=PLACES, flip=FLIPS, which=st.sampled_from(("truststore", "keystore")))
def test_a_changed_file_is_a_configuration_error_or_none(
    java_key_stores: JavaKeyStores, tmp_path: Path, place: float, flip: int, which: str
) -> None:
    """The file has no digest, so that OpenSSL sees the changed bytes."""
    file = tmp_path / "changed"
    store_password, key_password = java_key_stores.passwords("jks")
    source = java_key_stores.trust if which == "truststore" else java_key_stores.identities
    file.write_bytes(flipped(source["jks"].read_bytes(), place, flip))
    passwords = (
        {} if which == "truststore" else {"ssl.keystore.password": store_password, "ssl.key.password": key_password}
    )
    said = refusal_of({"security.protocol": "SSL", f"ssl.{which}.location": str(file), **passwords})
    assert said is None or f"configuration ssl.{which}" in said or "configuration ssl.key.password" in said
    assert not [secret for secret in passwords.values() if secret in (said or "")]


def refusal_of(options: dict[str, str]) -> str | None:
    """The problems that are reported about them; None when they are taken."""
    try:
        load_security(options)
    except ConfigurationError as error:
        return str(error)
    return None
