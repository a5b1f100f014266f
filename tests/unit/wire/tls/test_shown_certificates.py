"""Certificates of listeners that clients refuse, in the log and as a metric, and keys that do not
belong to their certificates.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runtime.configuration import ConfigurationError, load_settings
from runtime.metrics import new_registry
from runtime.times import unix_ms
from tests.support.clock import ManualClock
from tests.support.security.identities import Identities
from wire.tls import shown_certificates
from wire.tls.core.validity import Validity
from wire.tls.reloading import ListenerCertificates
from wire.tls.server_settings import ServerTlsSettings
from wire.tls.shown_certificates import note_shown, validity_of

EXPIRED = "a certificate has expired: clients refuse it"


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_certificates, "_shown", {})


def settings_of(file: Path) -> ServerTlsSettings:
    return load_settings(ServerTlsSettings, {"ssl.keystore.location": str(file)})


def seconds_left(listener: str) -> float | None:
    return new_registry().get_sample_value("antipode_certificate_expires_in_seconds", {"listener": listener})


def foreign_key(identities: Identities) -> str:
    """A key with the certificate of another one, in PEM."""
    key, _, _ = identities.issue("other").read_text().partition("-----BEGIN CERTIFICATE-----")
    _, begin, certificate = identities.issue("broker").read_text().partition("-----BEGIN CERTIFICATE-----")
    return key + begin + certificate


def test_an_expired_certificate_is_a_warning_at_the_start_and_a_metric_below_zero(tmp_path: Path) -> None:
    file = Identities(tmp_path).issue("page", days=0)
    with capture_logs() as lines:
        for _ in range(2):  # a daemon tries its files before it uses them
            ListenerCertificates(settings_of(file), listener="metrics")
    (line,) = lines
    assert (line["event"], line["log_level"], line["listener"]) == (EXPIRED, "warning", "metrics")
    assert line["subject"] == "CN=page"
    assert unix_ms(line["not_before"]) < unix_ms(line["not_after"])
    left = seconds_left("metrics")
    assert left is not None
    assert left < 0


def test_a_certificate_that_is_replaced_is_judged_again(tmp_path: Path) -> None:
    identities = Identities(tmp_path)
    file = identities.issue("page")
    with capture_logs() as lines:
        certificates = ListenerCertificates(settings_of(file), listener="metrics")
    assert lines == []
    identities.issue("page", days=0)
    with capture_logs() as lines:
        certificates.context()
        certificates.context()
    assert [line["event"] for line in lines] == [EXPIRED]


def test_a_certificate_that_is_not_valid_yet_is_a_warning() -> None:
    clock = ManualClock()
    now_ms = clock.now_ms()
    validity = Validity(subject="CN=page", serial="1f", begins_at_ms=now_ms + 1, ends_at_ms=now_ms + 10_000)
    with capture_logs() as lines:
        note_shown(validity, listener="metrics", clock=clock)
    assert [line["event"] for line in lines] == ["a certificate is not valid yet: clients refuse it"]


def test_a_certificate_that_cannot_be_read_is_a_warning_and_no_end(tmp_path: Path) -> None:
    file = tmp_path / "page.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with capture_logs() as lines:
        assert validity_of(settings_of(file), listener="metrics") is None
    assert [(line["event"], line["listener"]) for line in lines] == [
        ("the validity of a certificate cannot be read", "metrics")
    ]


def test_a_key_of_another_certificate_refuses_the_start(tmp_path: Path) -> None:
    file = tmp_path / "broker.pem"
    file.write_text(foreign_key(Identities(tmp_path / "identities")))
    with pytest.raises(ConfigurationError) as refused:
        ListenerCertificates(settings_of(file), listener="metrics")
    assert (refused.value.key, refused.value.value) == ("ssl.keystore.location", str(file))
    assert "the private key does not belong to the first certificate" in str(refused.value)


def test_a_key_of_another_certificate_leaves_the_former_ones_in_use(tmp_path: Path) -> None:
    identities = Identities(tmp_path)
    file = identities.issue("broker")
    certificates = ListenerCertificates(settings_of(file), listener="metrics")
    former = certificates.context()
    file.write_text(foreign_key(identities))
    with capture_logs() as lines:
        assert certificates.context() is former
    (line,) = lines
    assert line["listener"] == "metrics"
    assert "ssl.keystore.location" in line["reason"]
    assert "the private key does not belong to the first certificate" in line["reason"]
