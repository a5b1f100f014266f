"""Digests of what operators set at a site and the mirror carries: ACLs, SCRAM users, client quotas,
delegation tokens, and the configs of topics and groups, each part by itself.

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
from wire.rules.topic_configs import COPY_BEGINS

ACLS: Final = "ACLs"
USERS: Final = "SCRAM users"
QUOTAS: Final = "quotas"
TOKENS: Final = "delegation tokens"
TOPIC_CONFIGS: Final = "topic configs"
GROUP_CONFIGS: Final = "group configs"
"""The names of the parts, as messages name them."""

DIGEST_BYTES: Final = 16
KEY_BYTES: Final = 8

AccessDigests = Mapping[str, str]
"""A digest for each part that a site has, or that a mirror carries. A site without an authorizer
has neither ACLs nor SCRAM users nor tokens. An empty digest, which equals no other: the part is not
carried yet.
"""

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


def tokens_digest(tokens: Iterable[tuple[str, str]]) -> str:
    """The digest of a site's delegation tokens in any order: id, and document of ZooKeeper."""
    return _digest(tokens)


def topic_configs_digest(configs: Mapping[str, Mapping[str, str]]) -> str:
    """The digest of the configs that are set on topics. The offset at which a copy begins belongs
    to one site, and does not count.
    """
    return _configs_digest(
        {topic: {name: value for name, value in own.items() if name != COPY_BEGINS} for topic, own in configs.items()}
    )


def group_configs_digest(configs: Mapping[str, Mapping[str, str]]) -> str:
    """The digest of the configs that are set on groups."""
    return _configs_digest(configs)


def _configs_digest(configs: Mapping[str, Mapping[str, str]]) -> str:
    # A topic without configs of its own is like one that does not exist: partitions are compared
    # by themselves.
    return _digest((name, sorted(own.items())) for name, own in configs.items() if own)


def rule_key(part: str, identity: object) -> bytes:
    """A key of KEY_BYTES bytes of one rule, without the value that it gives: an ACL, a user with a
    mechanism, an entity with the name of its quota, or the id of a token with its owner.
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
