"""Patterns for topic names. The expected answers are those of Apache Kafka 4.3.1 (RE2/J) to
ConsumerGroupHeartbeat.
"""

from __future__ import annotations

import pytest

from broker.groups.core.consumer_protocol.topic_patterns import InvalidPattern, compiled_pattern, is_matched

LONG_PATTERN = "x" * 10_000


@pytest.mark.parametrize(
    "text",
    [
        ".*",
        "^.*[r]+3-.*[0-9]+.*$",
        "(a*)*(b*)*(c*)*",
        "(?<name>a)",
        "(?P<name>a)",
        r"\pL",
        r"\Qab\E",
        "[[:alpha:]]",
        r"a\z",
        "(?i)A",
        LONG_PATTERN,
    ],
)
def test_kafkas_patterns_are_taken(text: str) -> None:
    assert compiled_pattern(text).fullmatch("__no such topic__") is None or text == ".*"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a", "missing )"),
        ("a(?=b)", "(?="),
        (r"(a)\1", r"\1"),
        ("a++", "++"),
        ("a{1001}", "{1001}"),
        (r"a\Z", r"\Z"),
        ("[a-", "missing ]"),
        ("*a", "*"),
        ("|".join(f"(.*a.{{{count}}}b)" for count in range(900, 1000)), "too large"),
    ],
)
def test_patterns_that_kafka_refuses_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidPattern) as refused:
        compiled_pattern(text)
    assert reason in str(refused.value)


def test_a_pattern_matches_the_whole_name() -> None:
    pattern = compiled_pattern("orders|or.*rs-eu")
    assert [name for name in ("orders", "orders-eu", "xorders", "orders-eu-2") if pattern.fullmatch(name)] == [
        "orders",
        "orders-eu",
    ]
    assert compiled_pattern("^.*[r]+3-.*[0-9]+.*$").fullmatch("r3-topic-9") is not None


def test_a_stored_pattern_that_re2_does_not_take_matches_nothing() -> None:
    assert is_matched("orders.*", "orders-eu")
    assert not is_matched("orders(?!-eu).*", "orders-us")
