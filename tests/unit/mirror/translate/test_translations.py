"""A translate link's report of the surplus records at its target."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from mirror.translate.core.translation import Translation
from mirror.translate.translations import Translations
from tests.support.clock import ManualClock
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("t", 0)


@pytest.mark.parametrize(("transactions", "counted"), [(None, 5), (MagicMock(), 9)])
def test_the_count_goes_on_when_a_partition_is_begun_anew(transactions: Any, counted: int) -> None:
    """Between the batches of a link that writes in transactions there are markers: only aborted
    records count there.
    """
    translations = Translations(MagicMock(), MagicMock(), clock=ManualClock(), transactions=transactions)
    before = translations.of(KEY).surplus
    before.between, before.broken_off = 3, 9
    translations.put(KEY, Translation())
    translations.of(KEY).surplus.between += 2
    assert translations.surplus_records() == {KEY: counted}
