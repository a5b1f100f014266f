"""The settings that decide about logins and rights at a broker's site, without any secret: the
checks of a link compare them with the other site's (`dr/links/core/security_checks.py`).

Of a PLAIN user's password, and of the secret key of delegation tokens, the survey has one byte of a
hash. Another password has another byte in 255 of 256 cases, and a reader of any number of surveys
learns no more than this byte: 1 of 256 guessed passwords still fits.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from broker.authentication.core.sasl_mechanisms import OAUTHBEARER
from broker.authentication.delegation_tokens import read_token_secret
from broker.authentication.listener_security import MAPPING_RULES, ListenerSecurity
from broker.authentication.sasl_offers import ENABLED, of_mechanism, plain_passwords
from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.config import BrokerSettings
from broker.settings.loading import listener_security
from runtime.configuration import ConfigurationError
from wire.access.settings import load_control_settings
from wire.control import site_pb2 as site
from wire.identity.token_checks import AUDIENCE, ISSUER, NAME_CLAIM, SCOPE_CLAIM, SCOPES
from wire.rules.acls import Acl
from wire.rules.delegation_tokens import secret_check

if TYPE_CHECKING:
    from cryptography import x509

_ALL_ADDRESSES: Final = ("0.0.0.0", "::", "")  # noqa: S104  compared, not bound
_TOKEN_RULES: Final = (AUDIENCE, ISSUER, NAME_CLAIM, SCOPE_CLAIM, SCOPES)
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def security_survey(settings: BrokerSettings, image: ClusterImage) -> site.SecuritySurvey:
    """The survey of a broker's site, its files as they are now; one that cannot be read leaves its
    listener without certificates.
    """
    listeners = listener_security(settings).values()
    advertised = settings.advertised_listeners or settings.listeners
    hosts = {one.name: one.address.host for one in advertised if one.address.host not in _ALL_ADDRESSES}
    users = {f"{mechanism} {user}" for user, found in image.scram_users.items() for mechanism in found}
    users |= {
        f"PLAIN {user}" for listener in listeners if listener.is_sasl for user in plain_passwords(listener.properties)
    }
    secret = read_token_secret(settings.properties)
    return site.SecuritySurvey(
        has_authorizer=bool(settings.authorizer_class),
        super_users=settings.super_users,
        users=sorted(users),
        acls=_acls(image),
        listeners=[_listener(listener, hosts.get(listener.name, "")) for listener in listeners],
        delegation_tokens=len(image.delegation_tokens),
        delegation_token_secret=secret_check(secret) if secret else None,
        control_certificate_ends_at_ms=_control_certificate_ends_at_ms(settings.properties),
    )


def _acls(image: ClusterImage) -> list[site.PrincipalAcls]:
    """A number for each ACL, by principal: the same at every site."""
    found: dict[str, list[int]] = defaultdict(list)
    for pattern, entries in image.acls.items():
        for entry in entries:
            digest = hashlib.sha256(repr(tuple(map(str, Acl(pattern, entry)))).encode()).digest()
            found[entry.principal].append(int.from_bytes(digest[:8]))
    return [site.PrincipalAcls(principal=who, acls=sorted(acls)) for who, acls in sorted(found.items())]


def _listener(security: ListenerSecurity, advertised_host: str) -> site.ListenerSurvey:
    found = site.ListenerSurvey(
        name=security.name,
        protocol=security.protocol.value,
        mapping_rules=security.properties.get(MAPPING_RULES, "").strip() or "DEFAULT",
    )
    if security.is_sasl:
        found.mechanisms.extend(name.strip() for name in security.properties.get(ENABLED, "").split(",") if name)
        for key in _TOKEN_RULES:
            found.token_rules[key] = (of_mechanism(security.properties, OAUTHBEARER, key)[1] or "").strip()
        for user, password in plain_passwords(security.properties).items():
            found.plain_passwords[user] = password_check(user, password)
    if security.tls is None:
        return found
    found.client_auth = security.tls.client_auth.value
    try:
        found.tls_versions.extend(security.tls.versions)
        for digest, authority in _authorities(security.tls.trusted_pem() or ""):
            found.authorities.append(digest)
            found.authorities_found[digest].CopyFrom(authority)
        certificate = security.tls.own_certificate()
    except (ConfigurationError, OSError, ValueError):
        return found
    if certificate is not None:
        _describe_certificate(found, certificate, advertised_host)
    return found


def password_check(user: str, password: str) -> int:
    """One byte that is the same at every site for the same user and password."""
    return hashlib.sha256(b"\0".join((b"PLAIN", user.encode(), password.encode()))).digest()[0]


def _describe_certificate(found: site.ListenerSurvey, certificate: bytes, advertised_host: str) -> None:
    from cryptography import x509

    read = x509.load_der_x509_certificate(certificate)
    found.certificate_ends_at_ms = _ends_at_ms(read)
    found.certificate_issuer = read.issuer.rfc4514_string()
    if advertised_host and not names_host(_hosts_of(read), advertised_host):
        found.unnamed_host = advertised_host


def _authorities(pem: str) -> Iterator[tuple[str, site.AuthoritySurvey]]:
    from cryptography import x509

    for block in _CERTIFICATE.findall(pem):
        der = ssl.PEM_cert_to_DER_cert(block)
        read = x509.load_der_x509_certificate(der)
        survey = site.AuthoritySurvey(subject=read.subject.rfc4514_string(), ends_at_ms=_ends_at_ms(read))
        yield hashlib.sha256(der).hexdigest(), survey


def _ends_at_ms(certificate: x509.Certificate) -> int:
    return int(certificate.not_valid_after_utc.timestamp() * 1000)


def _hosts_of(certificate: x509.Certificate) -> list[str]:
    """The host names and addresses that a client compares with the one to which it connects."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def names_host(names: Iterable[str], host: str) -> bool:
    """True if one of the names is the host, or has a wildcard for its first label (RFC 6125)."""
    wanted = host.strip("[]").lower()
    _, dot, domain = wanted.partition(".")
    return any(name.lower() in (wanted, f"*.{domain}" if dot else wanted) for name in names)


def _control_certificate_ends_at_ms(properties: Mapping[str, str]) -> int:
    """When the broker's certificate on the control plane ends; 0 if there is none, or it cannot be
    read.
    """
    try:
        certificate = load_control_settings(properties).own_certificate()
    except (ConfigurationError, OSError, ValueError):
        return 0
    if certificate is None:
        return 0
    from cryptography import x509

    return _ends_at_ms(x509.load_der_x509_certificate(certificate))
