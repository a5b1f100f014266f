"""The content of a key store in any format, and the two errors of reading one."""

from __future__ import annotations

from msgspec import Struct


class UnusableStore(ValueError):
    """The store is truncated, was changed, or is of an unsupported kind; the message names which,
    and nothing secret.
    """


class WrongPassword(UnusableStore):
    """The password is wrong, or a needed password is missing."""


class StoredKey(Struct, frozen=True, kw_only=True):
    """A private key with its certificates in DER, its own one first."""

    alias: str
    key: bytes
    """PKCS #8 in DER; where it `is_locked`, as JKS locks it (`java_key_store.unlocked`)."""
    is_locked: bool
    chain: tuple[bytes, ...]


class KeyStore(Struct, frozen=True, kw_only=True):
    """Entries in the order of the file."""

    keys: tuple[StoredKey, ...]
    certificates: tuple[bytes, ...]
    """The trusted certificates, in DER."""

    @property
    def anchors(self) -> tuple[bytes, ...]:
        """The certificates that Java trusts by this store: the trusted ones, and the own
        certificate of each key without those above it.
        """
        own = (key.chain[0] for key in self.keys if key.chain)
        return tuple(dict.fromkeys((*self.certificates, *own)))
