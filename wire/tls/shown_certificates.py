"""The certificates that the listeners of this process show: a warning in the log about one that
clients refuse now or soon, and the time that is left as a metric of every daemon.

Callers: the readers of certificates of brokers' listeners, of the control plane, of metrics pages
and of the HTTP bridge.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from runtime.clock import Clock, SystemClock
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.metrics import show_process_figures
from runtime.times import iso_time
from wire.tls.core.validity import Validity
from wire.tls.settings import TlsSettings

log = get_logger(__name__)

_shown: Final[dict[str, Validity]] = {}
"""The certificates of this process by listener."""


def validity_of(settings: TlsSettings, *, listener: str) -> Validity | None:
    """The validity of the settings' own certificate; None without one. A certificate that OpenSSL
    accepts and this reader does not is logged, and None too.
    """
    try:
        certificate = settings.own_certificate()
        return None if certificate is None else _read(certificate)
    except (ConfigurationError, OSError, ValueError) as error:
        log.warning("the validity of a certificate cannot be read", listener=listener, reason=str(error))
        return None


def note_shown(validity: Validity | None, *, listener: str, clock: Clock | None = None) -> None:
    """The listener shows this certificate to new clients from now on. A problem is logged once for
    each certificate.
    """
    if validity is None or _shown.get(listener) == validity:
        return
    _shown[listener] = validity
    clock = clock or SystemClock()
    show_process_figures("certificates", partial(certificate_families, clock))
    if problem := validity.problem(clock.now_ms()):
        log.warning(
            problem,
            listener=listener,
            subject=validity.subject,
            serial=validity.serial,
            not_before=iso_time(validity.begins_at_ms),
            not_after=iso_time(validity.ends_at_ms),
        )


def certificate_families(clock: Clock) -> Iterator[GaugeMetricFamily]:
    """The time that is left of the certificate of each listener."""
    family = GaugeMetricFamily(
        "antipode_certificate_expires_in_seconds",
        "Time until the certificate that a listener shows to new clients expires; below 0: it has expired",
        labels=["listener"],
    )
    now_ms = clock.now_ms()
    # copied: another thread may note a certificate meanwhile
    for listener, validity in sorted(dict(_shown).items()):
        family.add_metric([listener], (validity.ends_at_ms - now_ms) / 1000)
    yield family


def _read(certificate: bytes) -> Validity:
    from cryptography import x509  # large: a plaintext process does without

    read = x509.load_der_x509_certificate(certificate)
    return Validity(
        subject=read.subject.rfc4514_string(),
        serial=f"{read.serial_number:x}",
        begins_at_ms=int(read.not_valid_before_utc.timestamp() * 1000),
        ends_at_ms=int(read.not_valid_after_utc.timestamp() * 1000),
    )
