"""Sound batches are found behind any damage, and nothing else is taken for one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crc32c import crc32c

from broker.log.dropped import sound_batches as module
from broker.log.dropped.sound_batches import sound_batches
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from wire.batches.record_batch import LOG_OVERHEAD, encode_header, read_header

NOISE = bytes([2, 0, 7, 2]) * 50


def found(path: Path, content: bytes, *, from_offset: int = 0, from_epoch: int = -1) -> list[int]:
    """The base offsets of the batches that are found."""
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        batches = sound_batches(
            RealDisk(), descriptor, str(path), 0, len(content), from_offset=from_offset, from_epoch=from_epoch
        )
        return [header.base_offset for header, _ in batches]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("window_bytes", [61, 62, 100, 1 << 20])
def test_batches_between_damaged_bytes_are_found_at_any_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", window_bytes)
    one, two, three = (batch([b"v" * 40], base_offset=offset) for offset in (5, 6, 9))
    damaged = batch([b"x" * 90], base_offset=8)[:-1] + b"y"
    content = NOISE + one + bytes(70) + two + damaged + b"\2" + three + one[:70]
    assert found(tmp_path / "f", content) == [5, 6, 9]
    assert found(tmp_path / "f", content, from_offset=6) == [6, 9]
    assert found(tmp_path / "f", NOISE + bytes(200)) == []


def test_bytes_of_an_earlier_leader_epoch_are_not_taken(tmp_path: Path) -> None:
    content = batch([b"v"], base_offset=5, leader_epoch=3) + batch([b"v"], base_offset=6, leader_epoch=4)
    assert found(tmp_path / "f", content, from_epoch=4) == [6]


def test_headers_inside_of_values_cost_a_bounded_number_of_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may write thousands of headers that claim all bytes behind them."""
    checked: list[int] = []

    def counted(content: bytes, crc: int = 0) -> int:
        checked.append(len(content))
        return crc32c(content, crc)

    monkeypatch.setattr(module, "crc32c", counted)
    monkeypatch.setattr(module, "_WINDOW_BYTES", 1_000)
    count = 1_000
    header = read_header(batch([b"v"]))
    claims = [
        encode_header(header._replace(batch_length=61 * (count - number) - LOG_OVERHEAD), b"")
        for number in range(count)
    ]
    content = b"".join(claims)
    assert found(tmp_path / "f", content) == []
    assert sum(checked) < (module._CHECKS_MAX + 1) * len(content)
    assert max(checked) <= 1_000
