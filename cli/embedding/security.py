"""Secured embedded sites: an authority and certificates of their own, made once, and the files by
which people show who they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from cli.credentials.authority import PRIVATE, Authority, load_authority, make_authority, save_authority, write_file
from cli.credentials.passwords import password_hash
from cli.embedding.layout_plan import HOST
from cli.embedding.part_properties import (
    bridge_rules,
    control_properties,
    login_properties,
    properties_text,
    zookeeper_properties,
)
from cli.embedding.site_layout import (
    ADMIN,
    ARBITER,
    BRIDGE_IDENTITY,
    BRIDGE_USERS,
    KAFKA_USERS,
    MIRROR_USER,
    OPERATOR,
    USER,
    VIEWER,
    ZOOKEEPER_USER,
    Layout,
    MirrorLayout,
    SecurityLayout,
    SiteLayout,
)
from cli.shared.command_config import use_command_config
from runtime.configuration import read_properties
from runtime.process import OperationalFailure
from wire.access.core.callers import role_uri
from wire.access.core.mirror_scope import DAEMON_SEPARATOR
from wire.access.core.roles import Role
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.acl_requests import create_acls, describe_acls
from wire.rules.acls import AclFilter
from wire.rules.mirror_rights import IN_BOTH_DIRECTIONS, acl_of

SECRET_BYTES: Final = 24
RENEWED_BEFORE_DAYS: Final = 30
"""Sites that are started now may run for this long before a certificate ends."""
PRIVATE_DIRECTORY: Final = 0o700
HOSTS: Final = (HOST, "localhost")
_PEOPLE: Final = {OPERATOR: Role.OPERATOR, VIEWER: Role.VIEWER}


def secure(layout: Layout, security: SecurityLayout) -> None:
    """Make the files that are missing, and have this process act as the operator.
    OperationalFailure.
    """
    _close_to_others(layout)
    if not security.authority.exists():
        save_authority(make_authority("Antipode sites on this machine"), security.directory)
    authority = load_authority(security.directory)
    for site in layout.sites:
        for broker in site.brokers:
            _issue(authority, security, broker.name, Role.BROKER)
        _issue(authority, security, f"zookeeper-{site.name}")
    if layout.arbiter is not None:
        _issue(authority, security, ARBITER)
    for mirror in layout.mirrors:
        _issue_mirror(authority, security, mirror)
    passwords = _kafka_passwords(security)
    for name, role in _PEOPLE.items():
        _issue(authority, security, name, role)
        _write(security, name, passwords)
    for user in (ADMIN, USER):
        login = login_properties(security, user, passwords[user])
        write_file(security.client_config(user), properties_text(login), mode=PRIVATE)
        write_file(security.kcat_config(user), properties_text(_kcat(security, user, passwords)), mode=PRIVATE)
    if layout.bridge is not None:
        _secure_bridge(authority, security, passwords)
    if not security.zookeeper_secret.exists():
        write_file(security.zookeeper_secret, f"password={secrets.token_urlsafe(SECRET_BYTES)}\n", mode=PRIVATE)
    use_command_config(security.command_config(OPERATOR))


def _close_to_others(layout: Layout) -> None:
    """Let no other user of the machine read records, or the SCRAM hashes that ZooKeeper logs."""
    parts = (*layout.sites, *layout.mirrors, layout.arbiter, layout.bridge)
    for directory in (part.directory for part in parts if part is not None):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(PRIVATE_DIRECTORY)
        except OSError as error:
            raise OperationalFailure(f"{directory} cannot be closed to other users ({error.strerror})") from error


def zookeeper_users(security: SecurityLayout | None) -> dict[str, str] | None:
    """Passwords by user, for the sites' ZooKeepers; None: open to all."""
    if security is None:
        return None
    return {ZOOKEEPER_USER: read_properties(security.zookeeper_secret)["password"]}


def security_environment(security: SecurityLayout, *, has_bridge: bool) -> dict[str, str]:
    """The paths, for the environment file."""
    logins = {f"{user}_netrc": str(security.netrc(user)) for user in BRIDGE_USERS} if has_bridge else {}
    return {
        **logins,
        "ca": str(security.authority),
        "command_config": str(security.command_config(OPERATOR)),
        "viewer_command_config": str(security.command_config(VIEWER)),
        "admin_client_config": str(security.client_config(ADMIN)),
        "user_client_config": str(security.client_config(USER)),
        "admin_kcat_config": str(security.kcat_config(ADMIN)),
        "user_kcat_config": str(security.kcat_config(USER)),
    }


async def grant_mirror_rights(site: SiteLayout) -> None:
    """Give the mirrors' user the rights that a mirror needs, and no others. OperationalFailure."""
    acls = [acl_of(f"User:{MIRROR_USER}", right) for right in IN_BOTH_DIRECTIONS]
    try:
        async with KafkaClient(site.bootstrap_servers, site_local=True) as admin:
            missing = set(acls) - await describe_acls(admin, AclFilter())
            if missing:
                await create_acls(admin, sorted(missing))
    except KafkaClientError as error:
        raise OperationalFailure(f"the mirrors' rights at site {site.name} cannot be given: {error}") from error


def _kcat(security: SecurityLayout, user: str, passwords: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's names of the options of a login."""
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(security.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": passwords[user],
    }


def kcat_login(environment: Mapping[str, Any]) -> str:
    """The option by which kcat logs in at these sites, after a space; empty at open ones."""
    security = environment.get("security")
    return "" if security is None else f" -F {security['admin_kcat_config']}"


def _secure_bridge(authority: Authority, security: SecurityLayout, passwords: Mapping[str, str]) -> None:
    """The bridge's certificate, the hashes of its users' passwords, and the rules for them."""
    _issue(authority, security, BRIDGE_IDENTITY)
    if not security.bridge_users.exists():
        hashed = [f"{user}:{password_hash(passwords[user])}\n" for user in BRIDGE_USERS]
        write_file(security.bridge_users, "".join(hashed), mode=PRIVATE)
    write_file(security.bridge_rules, properties_text(bridge_rules(security)), mode=PRIVATE)
    for user in BRIDGE_USERS:
        login = f"machine {HOST} login {user} password {passwords[user]}\n"
        write_file(security.netrc(user), login, mode=PRIVATE)


def _issue(authority: Authority, security: SecurityLayout, name: str, role: Role | None = None) -> None:
    """A certificate, with a role on the control plane or with none, unless a good one is there."""
    file = security.identity(name)
    if not authority.is_issuer_of(file, for_days=RENEWED_BEFORE_DAYS):
        uris = [] if role is None else [role_uri(role, name)]
        text = authority.issue(common_name=name, uris=uris, hosts=HOSTS)
        write_file(file, text, mode=PRIVATE)


def _issue_mirror(authority: Authority, security: SecurityLayout, mirror: MirrorLayout) -> None:
    """A certificate for the mirror's link alone. It is made anew each time, because the sites may
    have been made by a release whose certificates name no link.
    """
    name = f"mirror-{mirror.name}"
    uri = role_uri(Role.MIRROR, f"{mirror.link}{DAEMON_SEPARATOR}{mirror.name}")
    text = authority.issue(common_name=name, uris=[uri], hosts=HOSTS)
    write_file(security.identity(name), text, mode=PRIVATE)


def _kafka_passwords(security: SecurityLayout) -> dict[str, str]:
    """Passwords by user of the Kafka listeners, made once."""
    file = security.kafka_secrets
    if not file.exists():
        made = {user: secrets.token_urlsafe(SECRET_BYTES) for user in KAFKA_USERS}
        write_file(file, properties_text(made), mode=PRIVATE)
    return read_properties(file)


def _write(security: SecurityLayout, name: str, passwords: Mapping[str, str]) -> None:
    """The operator is the administrator of ZooKeeper and of the Kafka listeners as well."""
    properties = control_properties(security, name)
    if name == OPERATOR:
        properties |= {**zookeeper_properties(security, name), **login_properties(security, ADMIN, passwords[ADMIN])}
    write_file(security.command_config(name), properties_text(properties), mode=PRIVATE)
