"""The keys of access rules that both sites have had, as the mirror reads and stores them."""

from __future__ import annotations

import pytest

from mirror.link.link_watch import AgentsUnreachable
from mirror.topics.shared_access import KEYS_MAX, SharedAccessKeys, TooManyRules
from tests.support.memory.shared_access import MemorySharedAccess
from wire.rules.access_digests import ACLS, KEY_BYTES, USERS

ONE, OTHER = b"1" * KEY_BYTES, b"2" * KEY_BYTES


async def test_keys_are_stored_once_in_an_epoch_and_read_again() -> None:
    agents = MemorySharedAccess()
    keys = SharedAccessKeys(agents)
    await keys.read(epoch=1)
    await keys.keep(ACLS, frozenset({ONE, OTHER}), epoch=1)
    await keys.keep(USERS, frozenset({ONE}), epoch=1)
    await keys.keep(USERS, frozenset({ONE}), epoch=1)
    assert agents.version == 1
    after = SharedAccessKeys(agents)
    await after.read(epoch=2)
    assert agents.asked_epochs == [1, 2], "only agents that know this epoch may answer"
    assert (after.of(ACLS), after.of(USERS)) == ({ONE, OTHER}, {ONE})
    await after.keep(USERS, frozenset({ONE}), epoch=2)
    assert agents.shared.epoch == 2, "the same keys are stored again in another epoch"


async def test_a_daemon_does_not_replace_what_another_one_has_stored() -> None:
    agents = MemorySharedAccess()
    one, other = SharedAccessKeys(agents), SharedAccessKeys(agents)
    await one.read(epoch=1)
    await other.read(epoch=1)
    await one.keep(ACLS, frozenset({ONE}), epoch=1)
    with pytest.raises(AgentsUnreachable):
        await other.keep(ACLS, frozenset({OTHER}), epoch=1)


async def test_without_the_agents_no_keys_are_known_and_none_are_stored() -> None:
    agents = MemorySharedAccess()
    keys = SharedAccessKeys(agents)
    await keys.read(epoch=1)
    await keys.keep(ACLS, frozenset({ONE}), epoch=1)
    agents.problem = "no site agent answers"
    await keys.read(epoch=1)
    assert keys.of(ACLS) == frozenset()
    with pytest.raises(AgentsUnreachable, match="no site agent answers"):
        await keys.keep(ACLS, frozenset({OTHER}), epoch=1)


async def test_agents_of_an_earlier_release_store_nothing() -> None:
    keys = SharedAccessKeys(MemorySharedAccess(is_offered=False))
    await keys.read(epoch=1)
    await keys.keep(ACLS, frozenset({ONE}), epoch=1)
    assert keys.of(ACLS) == frozenset()


async def test_more_rules_than_a_znode_holds_are_refused() -> None:
    keys = SharedAccessKeys(MemorySharedAccess())
    await keys.read(epoch=1)
    many = frozenset(number.to_bytes(KEY_BYTES, "big") for number in range(KEYS_MAX + 1))
    with pytest.raises(TooManyRules, match=f"{KEYS_MAX + 1} access rules"):
        await keys.keep(ACLS, many, epoch=1)
