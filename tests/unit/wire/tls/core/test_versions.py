"""Versions and cipher suites by Kafka's options."""

from __future__ import annotations

import ssl

import pytest

from wire.tls.core.versions import (
    SUITES_OF_TLS_1_3,
    TLS_1_2,
    TLS_1_3,
    VERSIONS,
    offer_of,
    openssl_suite,
    parse_versions,
)


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_a_suite_s_iana_name_becomes_the_one_that_openssl_knows(iana: str, openssl: str) -> None:
    assert openssl_suite(iana) == openssl
    context = ssl.create_default_context()
    context.set_ciphers(openssl)
    assert openssl in {cipher["name"] for cipher in context.get_ciphers()}


def test_suites_decide_which_versions_are_offered() -> None:
    older = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    assert offer_of(VERSIONS, []) == (VERSIONS, "")
    assert offer_of(VERSIONS, [older]) == ((TLS_1_2,), "ECDHE-RSA-AES128-GCM-SHA256")
    assert offer_of(VERSIONS, SUITES_OF_TLS_1_3) == ((TLS_1_3,), "")
    assert offer_of(VERSIONS, [*SUITES_OF_TLS_1_3, older]).versions == VERSIONS


def test_versions_and_suites_that_cannot_be_offered_are_refused() -> None:
    with pytest.raises(ValueError, match="in part"):
        offer_of(VERSIONS, SUITES_OF_TLS_1_3[:1])
    with pytest.raises(ValueError, match=r"no suite belongs to TLSv1\.3"):
        offer_of([TLS_1_3], ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
    with pytest.raises(ValueError, match=r"TLSv1\.1"):
        parse_versions("TLSv1.1,TLSv1.2")
    assert parse_versions(" TLSv1.3 , TLSv1.2") == VERSIONS
