"""Batches that the leader compresses anew: by the topic's codec, at the broker's level."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.log.core.batch_checks import BatchRejected
from broker.settings.core.topic_configs import LogConfig
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log, read_all

TEXT = b" ".join(
    b"departure %d of flight %d" % (number * 7919 % 1000, number * 104729 % 5000) for number in range(4000)
)


def stored_bytes(directory: Path, broker_properties: dict[str, str], **overrides: str) -> int:
    """The size of a batch in the log of a topic, at a broker with these properties."""
    log = open_log(directory, config=LogConfig.from_topic_configs(broker_properties, overrides))
    log.append_as_leader(batch([TEXT], timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    (header,) = read_all(log)
    return header.size_bytes


@pytest.mark.parametrize(
    ("quick", "thorough"),
    [
        ({"compression.gzip.level": "1"}, {"compression.gzip.level": "9"}),
        ({"compression.lz4.level": "1"}, {"compression.lz4.level": "12"}),
        ({"compression.zstd.level": "1"}, {"compression.zstd.level": "19"}),
    ],
)
def test_a_higher_level_makes_batches_smaller(tmp_path: Path, quick: dict[str, str], thorough: dict[str, str]) -> None:
    codec = {"compression.type": next(iter(quick)).split(".")[1]}
    larger = stored_bytes(tmp_path / "quick", codec | quick)
    smaller = stored_bytes(tmp_path / "thorough", codec | thorough)
    assert smaller < larger < len(TEXT)


def test_the_codec_of_a_topic_goes_before_the_broker_s(tmp_path: Path) -> None:
    config = LogConfig.from_topic_configs({"compression.type": "zstd"}, {"compression.type": "uncompressed"})
    log = open_log(tmp_path, config=config)
    log.append_as_leader(batch([TEXT], codec=1, timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    (header,) = read_all(log)
    assert (header.compression, header.size_bytes > len(TEXT)) == (0, True)


def test_a_batch_that_grows_past_the_limit_of_its_topic_is_refused(tmp_path: Path) -> None:
    log = open_log(
        tmp_path,
        config=LogConfig.from_topic_configs({}, {"compression.type": "uncompressed", "max.message.bytes": "60000"}),
    )
    with pytest.raises(BatchRejected, match=r"max\.message\.bytes is 60000"):
        log.append_as_leader(batch([TEXT], codec=1, timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 0
