"""The offsets in the files of a Structured Streaming checkpoint."""

from __future__ import annotations

import json

import pytest

from spark_jobs.connector.core.checkpoints import InvalidCheckpoint, parse_offsets_file, positions, rewritten

METADATA = '{"batchWatermarkMs":0}'


def test_each_source_keeps_its_own_position_in_a_topic_that_two_of_them_read() -> None:
    """As of a query that joins a topic with itself: its sources ask for the end in turn."""
    lines = [json.dumps({"t": {"0": 20}, "t (leader epochs)": {"0": 3}}), json.dumps({"t": {"0": 25}}), "-"]
    file = parse_offsets_file("\n".join(("v1", METADATA, *lines, '{"logOffset":7}')))
    assert positions(file) == {(("t", 0), 20), (("t", 0), 25)}
    there = {(("t", 0), 20): ("a.t", 0, 10), (("t", 0), 25): ("a.t", 0, 15)}
    assert str(rewritten(file, there)).splitlines() == [
        "v1",
        METADATA,
        '{"a.t":{"0":10}}',
        '{"a.t":{"0":15}}',
        "-",
        '{"logOffset":7}',
    ]


def test_a_file_of_another_version_is_refused() -> None:
    with pytest.raises(InvalidCheckpoint, match="begin with 'v9'; accepted: v1"):
        parse_offsets_file(f"v9\n{METADATA}\n-")
