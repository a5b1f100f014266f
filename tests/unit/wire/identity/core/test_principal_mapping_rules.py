"""Principals of certificates: the rules' examples of Kafka's documentation, and the names of
subjects.
"""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from wire.identity.core.distinguished_names import subject_of
from wire.identity.core.principal_mapping_rules import PrincipalRules

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("OU=x,CN=Duke.One", "duke.one"),
        ("OU=nameless", "OU=nameless"),
    ],
)
def test_the_first_rule_that_matches_names_the_principal(subject: str, name: str) -> None:
    assert PrincipalRules(RULES).name_of(subject) == name


def test_without_a_rule_that_matches_there_is_no_name() -> None:
    rules = PrincipalRules(r"RULE:^CN=(.*)\/(.*)$/$2 of $1/U")
    assert rules.name_of("CN=anna/b") == "B OF ANNA"
    assert rules.name_of("O=anna") is None
    assert PrincipalRules(" ").name_of("CN=anna") == "CN=anna"


@pytest.mark.parametrize("text", ["RULE:^CN=(.*)$", "DEFAULT,anything", "RULE:(/$1/", "RULE:^CN=.*$/$1/", "default"])
def test_a_text_that_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"accepted: rules of the form RULE:pattern/replacement/\[L\|U\]"):
        PrincipalRules(text)


def _certificate(*attributes: x509.NameAttribute) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(attributes)
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_a_subject_is_written_as_java_writes_it() -> None:
    subject = _certificate(
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Müller, Söhne"),
        x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.de"),
        x509.NameAttribute(NameOID.COMMON_NAME, " anna#"),
    )
    assert subject_of(subject) == "CN=\\ anna#,1.2.840.113549.1.9.1=#16066140622e6465,O=Müller\\, Söhne,C=DE"


def test_bytes_that_are_no_certificate_have_no_subject() -> None:
    with pytest.raises(ValueError, match="parsing"):
        subject_of(b"\x30\x03\x02\x01\x01")
