"""What decides who may log in at a broker's site and do what, without any secret: for the checks of
a link, which compare it with the other site's (`dr/links/core/security_checks.py`).
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections import defaultdict
from collections.abc import Iterator

from broker.authentication.listener_security import ListenerSecurity
from broker.authentication.sasl_offers import ENABLED, plain_users
from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.config import BrokerSettings
from broker.settings.loading import listener_security
from runtime.configuration import ConfigurationError
from wire.control import site_pb2 as site
from wire.rules.acls import Acl

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def security_survey(settings: BrokerSettings, image: ClusterImage) -> site.SecuritySurvey:
    """The survey of a broker's site, its files as they are now; one that cannot be read leaves its
    listener without certificates.
    """
    listeners = listener_security(settings).values()
    users = {f"{mechanism} {user}" for user, found in image.scram_users.items() for mechanism in found}
    users |= {f"PLAIN {user}" for listener in listeners for user in plain_users(listener.properties)}
    return site.SecuritySurvey(
        has_authorizer=bool(settings.authorizer_class),
        super_users=settings.super_users,
        users=sorted(users),
        acls=_acls(image),
        listeners=[_listener(listener) for listener in listeners],
        delegation_tokens=len(image.delegation_tokens),
    )


def _acls(image: ClusterImage) -> list[site.PrincipalAcls]:
    """A number for each ACL, by principal: the same at every site."""
    found: dict[str, list[int]] = defaultdict(list)
    for pattern, entries in image.acls.items():
        for entry in entries:
            digest = hashlib.sha256(repr(tuple(map(str, Acl(pattern, entry)))).encode()).digest()
            found[entry.principal].append(int.from_bytes(digest[:8]))
    return [site.PrincipalAcls(principal=who, acls=sorted(acls)) for who, acls in sorted(found.items())]


def _listener(security: ListenerSecurity) -> site.ListenerSurvey:
    found = site.ListenerSurvey(name=security.name, protocol=security.protocol.value)
    if security.is_sasl:
        found.mechanisms.extend(name.strip() for name in security.properties.get(ENABLED, "").split(",") if name)
    if security.tls is None:
        return found
    found.client_auth = security.tls.client_auth.value
    try:
        found.authorities.extend(_fingerprints(security.tls.trusted_pem() or ""))
        certificate = security.tls.own_certificate()
    except (ConfigurationError, OSError, ValueError):
        return found
    if certificate is not None:
        found.certificate_ends_at_ms = _ends_at_ms(certificate)
    return found


def _fingerprints(pem: str) -> Iterator[str]:
    for block in _CERTIFICATE.findall(pem):
        yield hashlib.sha256(ssl.PEM_cert_to_DER_cert(block)).hexdigest()


def _ends_at_ms(certificate: bytes) -> int:
    from cryptography import x509

    return int(x509.load_der_x509_certificate(certificate).not_valid_after_utc.timestamp() * 1000)
