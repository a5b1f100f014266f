"""Digests of a site's access rules: ACLs, SCRAM users and client quotas, each part by itself.

The broker of an active site and the mirror that has read the rules there compute the same digest
from the same rules. A planned move compares both, so it knows that the standby has every change,
removals included, without sending the rules. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from wire.rules.acls import Acl
from wire.rules.client_quotas import Quota

ACLS: Final = "ACLs"
USERS: Final = "SCRAM users"
QUOTAS: Final = "quotas"
"""The names of the parts, as messages name them."""

DIGEST_BYTES: Final = 16
KEY_BYTES: Final = 8

AccessDigests = Mapping[str, str]
"""A digest for each part that the site has; a site without an authorizer has only quotas."""

ScramCredential = tuple[str, str, str]
"""A user, a mechanism, and the credential in the form of ZooKeeper."""


def acls_digest(acls: Iterable[Acl]) -> str:
    """The digest of a site's ACLs in any order."""
    return _digest((tuple(map(_plain, acl.pattern)), tuple(map(_plain, acl.entry))) for acl in acls)


def users_digest(credentials: Iterable[ScramCredential]) -> str:
    """The digest of a site's SCRAM users in any order."""
    return _digest(credentials)


def quotas_digest(quotas: Iterable[Quota]) -> str:
    """The digest of a site's client quotas in any order."""
    return _digest((entity, key, float(value)) for entity, key, value in quotas)


def rule_key(part: str, identity: object) -> bytes:
    """A key of KEY_BYTES bytes of one rule, without the value that it gives: an ACL, a user with a
    mechanism, or an entity with the name of its quota.
    """
    if isinstance(identity, Acl):
        identity = (tuple(map(_plain, identity.pattern)), tuple(map(_plain, identity.entry)))
    return hashlib.blake2b(repr((part, identity)).encode(), digest_size=KEY_BYTES).digest()


def joined_keys(keys: Iterable[bytes]) -> bytes:
    """Keys of rules, one behind the other."""
    return b"".join(sorted(keys))


def split_keys(keys: bytes) -> frozenset[bytes]:
    """The keys that `joined_keys` put together."""
    return frozenset(keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES))


def _plain(value: object) -> object:
    # Both sides must write an enum's member and its number alike.
    return int(value) if isinstance(value, int) else value


def _digest(entries: Iterable[object]) -> str:
    lines = sorted(repr(entry) for entry in entries)
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=DIGEST_BYTES).hexdigest()
