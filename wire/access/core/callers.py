"""Maps a certificate's names, or a token, to a caller. Pure.

A certificate names its holder with one URI among its subject alternative names:
`antipode://ROLE/NAME`, where a mirror's name begins with that of its link. If the authority issues
certificates without such URIs, a regular expression that matches the whole subject (RFC 4514) gives
the role. A token is a line in a file of hashes: `NAME ROLE sha256:HEX`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

import re2
from msgspec import Struct

from wire.access.core.mirror_scope import LINK_GROUP, link_of_name
from wire.access.core.roles import Caller, Role

SCHEME: Final = "antipode://"
NAME_ACCEPTED: Final = "1 to 100 letters, digits and . _ - @"
HASH_PREFIX: Final = "sha256:"
BEARER: Final = "bearer "

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_ROLES: Final = {role.value: role for role in Role}
ROLES_ACCEPTED: Final = ", ".join(_ROLES)


class UnusableName(ValueError):
    """A certificate or a line of the tokens' file names no caller; the message says why."""


class SubjectRule(Struct, frozen=True):
    """Certificates with such a subject have this role."""

    role: Role
    pattern: str

    def caller(self, subject: str) -> Caller | None:
        """The caller with this subject; None unless the pattern matches the whole subject. The
        group `link` of a mirror's pattern matches its link.
        """
        # RE2 takes linear time for any subject; the subject comes from the peer's certificate.
        found = re2.fullmatch(self.pattern, subject)
        if found is None:
            return None
        link = found.groupdict().get(LINK_GROUP) if self.role is Role.MIRROR else None
        return Caller(subject, self.role, link or "")


def role_uri(role: Role, name: str) -> str:
    """The URI in a certificate of this caller. Raises UnusableName."""
    return f"{SCHEME}{role}/{checked_name(name)}"


def checked_name(name: str) -> str:
    """The name. UnusableName when it is none."""
    if not _NAME.fullmatch(name):
        raise UnusableName(f"name {name[:120]!r}: accepted are {NAME_ACCEPTED}")
    return name


def caller_of_certificate(uris: Iterable[str], subject: str, rules: Iterable[SubjectRule] = ()) -> Caller:
    """The caller by its URI, else by the first rule that its subject matches, else one without a
    role. Raises UnusableName for URIs that contradict each other or have no known form.
    """
    # Schemes of URIs ignore case (RFC 3986).
    ours = sorted({uri for uri in uris if uri.lower().startswith(SCHEME)})
    # Refused: with two roles in one certificate, the order of its URIs would decide about rights.
    if len(ours) > 1:
        raise UnusableName(f"the certificate has {len(ours)} names {SCHEME}ROLE/NAME: accepted is one")
    if ours:
        return _caller_of_uri(ours[0])
    for rule in rules:
        caller = rule.caller(subject)
        if caller is not None:
            return caller
    return Caller(subject or "(no subject)", None)


def _caller_of_uri(uri: str) -> Caller:
    role, slash, name = uri[len(SCHEME) :].partition("/")
    if not slash or role not in _ROLES:
        raise UnusableName(
            f"the certificate's name {uri[:200]!r} is not {SCHEME}ROLE/NAME with a role of {ROLES_ACCEPTED}"
        )
    return _named_caller(name, _ROLES[role])


def _named_caller(name: str, role: Role) -> Caller:
    return Caller(checked_name(name), role, link_of_name(role, name))


def hash_of(token: str) -> str:
    """The stored form of a token. Tokens are 32 random bytes, so that a plain hash keeps them
    secret.
    """
    return HASH_PREFIX + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_line(name: str, role: Role, token: str) -> str:
    """The line of the tokens' file for this token. UnusableName."""
    return f"{checked_name(name)} {role} {hash_of(token)}"


def parse_tokens(text: str) -> Mapping[str, Caller]:
    """Callers by the hashes of their tokens. UnusableName names the line."""
    callers: dict[str, Caller] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 3 or fields[1] not in _ROLES or not _is_hash(fields[2]):
            raise UnusableName(f"line {number} is not NAME ROLE {HASH_PREFIX}HEX with a role of {ROLES_ACCEPTED}")
        try:
            caller = _named_caller(fields[0], _ROLES[fields[1]])
        except UnusableName as error:
            raise UnusableName(f"line {number}: {error}") from error
        if callers.setdefault(fields[2], caller) != caller:
            raise UnusableName(f"line {number}: the token of {callers[fields[2]]} is given to {caller} as well")
    return callers


def _is_hash(text: str) -> bool:
    return text.startswith(HASH_PREFIX) and _HEX.fullmatch(text[len(HASH_PREFIX) :]) is not None


def caller_of_token(authorization: str, callers: Mapping[str, Caller]) -> Caller | None:
    """The caller by the value of an `authorization` header; None if its token is not known.

    The look-up is by hash, so its duration reveals nothing about the token.
    """
    if authorization[: len(BEARER)].lower() != BEARER:
        return None
    return callers.get(hash_of(authorization[len(BEARER) :].strip()))
