"""Filters of DescribeClientQuotas that Apache Kafka 4.3.1 refuses, in its words."""

from __future__ import annotations

import pytest

from broker.quotas.core.quota_filter import BadFilter, FilterPart, Match, check_filter
from wire.rules.client_quotas import USER


@pytest.mark.parametrize(
    ("match", "name", "words"),
    [
        (Match.EXACT, None, "Request specified MATCH_TYPE_EXACT, but set the match string to null."),
        (Match.DEFAULT, "u", "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        (Match.ANY, "u", "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
    ],
)
def test_a_name_is_for_exact_matches_alone(match: Match, name: str | None, words: str) -> None:
    with pytest.raises(BadFilter, match=words):
        check_filter([FilterPart(USER, match, name)])
