"""What the standby's access rules need so that they are like the active site's. Pure.

The mirror removes only rules that both sites have had, which it knows by their keys: a rule that
only the standby ever had stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

Identity = TypeVar("Identity")
Value = TypeVar("Value")


class AccessChanges(NamedTuple, Generic[Identity, Value]):
    """The rules to set and to remove at the standby. `keys`: those of all rules that the active
    site has.
    """

    to_set: Mapping[Identity, Value]
    to_remove: Collection[Identity]
    keys: frozenset[bytes]


def access_changes(
    wanted: Mapping[Identity, Value],
    *,
    actual: Mapping[Identity, Value],
    shared: Collection[bytes],
    key: Callable[[Any], bytes],
) -> AccessChanges[Identity, Value]:
    """Compare the active site's rules (`wanted`) with the standby's (`actual`). `shared`: the keys
    of the rules that both sites have had.
    """
    return AccessChanges(
        to_set={one: value for one, value in wanted.items() if one not in actual or actual[one] != value},
        to_remove=[one for one in actual if one not in wanted and key(one) in shared],
        keys=frozenset(map(key, wanted)),
    )
