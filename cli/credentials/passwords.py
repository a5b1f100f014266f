"""Passwords of users of the HTTP bridge, as lines `NAME:HASH` with hashes of bcrypt."""

from __future__ import annotations

from typing import Final

import bcrypt

COST: Final = 10
"""About a tenth of a second of one core for each check."""
BYTES_MAX: Final = 72


def password_hash(password: str) -> str:
    """The hash for a line of the file. ValueError for a password that bcrypt does not take."""
    given = password.encode()
    if not 0 < len(given) <= BYTES_MAX or b"\0" in given:
        raise ValueError(f"a password has 1 to {BYTES_MAX} bytes, and no zero byte")
    return bcrypt.hashpw(given, bcrypt.gensalt(COST)).decode("ascii")


def with_user(text: str, name: str, password: str) -> str:
    """The file's text with this user, whose former line is replaced. ValueError for a name or a
    password that cannot be in it.
    """
    if not name or name != name.strip() or ":" in name or "\n" in name or name.startswith("#"):
        raise ValueError("a name is not empty, has no colon and no line break, and begins with no #")
    kept = [line for line in text.splitlines() if line.partition(":")[0].strip() != name]
    return "\n".join([*kept, f"{name}:{password_hash(password)}"]) + "\n"
