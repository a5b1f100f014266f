"""The file of users who log in by a password: lines `NAME:HASH`, hashes of bcrypt, as `htpasswd -B`
and `antipode credentials password` make them. Pure.
"""

from __future__ import annotations

import re
from typing import Final

COST_MAX: Final = 14
"""A hash of cost 14 takes about a second of one core to check."""
PASSWORD_BYTES_MAX: Final = 72
"""bcrypt accepts passwords up to this size."""
ACCEPTED: Final = f"lines NAME:HASH with hashes of bcrypt ($2b$, $2y$ or $2a$) of a cost from 4 to {COST_MAX}"
_HASH: Final = re.compile(rb"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")


def read_passwords(text: str) -> dict[str, bytes]:
    """Hashes by name. Raises ValueError, which names the line and does not repeat its content."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, hashed = (part.strip() for part in line.partition(":"))
        if not name or name in found:
            raise ValueError(f"line {number} has no name, or has the name of an earlier line")
        shape = _HASH.fullmatch(hashed.encode())
        if shape is None or not 4 <= int(shape[1]) <= COST_MAX:
            raise ValueError(f"line {number} has no hash of bcrypt that is accepted")
        found[name] = hashed.encode()
    if not found:
        raise ValueError("it has no user")
    return found
