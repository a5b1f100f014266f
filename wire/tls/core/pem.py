"""PEM: the contents of a file, the PEM form of a key store's entries, and of a value in a
properties file (KIP-651).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

from wire.tls.core.entries import UnusableStore

BEGIN: Final = b"-----BEGIN "
CERTIFICATE: Final = "CERTIFICATE"
PRIVATE_KEY: Final = "PRIVATE KEY"

_LINE: Final = 64
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_NO_BASE64: Final = re.compile(r"\\n|\s")


def armoured(label: str, data: bytes) -> str:
    """One block."""
    text = base64.b64encode(data).decode("ascii")
    lines = (text[position : position + _LINE] for position in range(0, len(text), _LINE))
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def certificates_and_key(certificates: Iterable[bytes], key: bytes) -> str:
    """A key in PKCS #8 and its certificates, its own one first."""
    return armoured(PRIVATE_KEY, key) + "".join(armoured(CERTIFICATE, one) for one in certificates)


def unfolded(value: str, label: str) -> str:
    """The blocks whose label ends so, in lines again: a value has them as it likes, all in one line
    too. UnusableStore without any.
    """
    found = [(name, body) for name, body in _BLOCK.findall(value) if name.endswith(label)]
    if not found:
        raise UnusableStore(f"no block -----BEGIN {label}----- to -----END {label}-----")
    try:
        return "".join(
            armoured(name, base64.b64decode(_NO_BASE64.sub("", body), validate=True)) for name, body in found
        )
    except binascii.Error as error:
        raise UnusableStore(f"a block {label} is not base64") from error
