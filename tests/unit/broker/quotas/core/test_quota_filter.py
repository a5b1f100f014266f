"""Filters of DescribeClientQuotas that Apache Kafka 4.3.1 refuses, in its words."""

from __future__ import annotations

import pytest

from broker.quotas.core.quota_filter import BadFilter, FilterPart, Match, check_filter
from wire.rules.client_quotas import USER


@pytest.mark.parametrize(
    ("match", "name", "words"),
    [
        (Match.EXACT, None, "asks for a certain user without a name; accepted is a name"),
        (Match.DEFAULT, "u", "asks for the default user and has the name 'u'; accepted is no name"),
        (Match.ANY, "u", "asks for any user and has the name 'u'; accepted is no name"),
    ],
)
def test_a_name_is_for_exact_matches_alone(match: Match, name: str | None, words: str) -> None:
    with pytest.raises(BadFilter, match=words):
        check_filter([FilterPart(USER, match, name)])
