"""The chance door: the random numbers of the code that all programs share.

Like the running event loop, chance belongs to the context and is passed to no function: code that
spreads retries or makes an id is called from everywhere. The simulation gives each context
generators of its seed (`use_chance`); elsewhere one pair serves the process. Secrets do not come
from here, but from the module `secrets`.
"""

from __future__ import annotations

import random
import uuid
from contextvars import ContextVar, Token
from typing import Final

from msgspec import Struct


class Chance(Struct, frozen=True, kw_only=True):
    """Two generators of random numbers."""

    jitter: random.Random
    """Spreads retries, logins and load."""
    ids: random.Random
    """For values that must differ between processes."""


_PROCESS: Final = Chance(jitter=random.Random(), ids=random.SystemRandom())  # noqa: S311  no secrets
_CHANCE: Final = ContextVar("chance", default=_PROCESS)


def jitter() -> random.Random:
    """The generator that spreads retries, logins and load."""
    return _CHANCE.get().jitter


def new_uuid() -> uuid.UUID:
    """A random UUID (version 4)."""
    return uuid.UUID(int=_CHANCE.get().ids.getrandbits(128), version=4)


def drawn_below(count: int) -> int:
    """A number from 0 to `count - 1`."""
    return _CHANCE.get().ids.randrange(count)


def use_chance(chance: Chance) -> Token[Chance]:
    """Draw from `chance` in this context, until `end_chance` with the token."""
    return _CHANCE.set(chance)


def end_chance(token: Token[Chance]) -> None:
    """Draw from the former generators again."""
    _CHANCE.reset(token)
