"""The world of the tests of groups."""

from __future__ import annotations

import pytest

from tests.support.memory.carried_groups import world_with_groups
from tests.support.memory.memory_world import MemoryWorld


@pytest.fixture
def world() -> MemoryWorld:
    return world_with_groups()
