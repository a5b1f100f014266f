"""The bytes of MirrorMaker 2's records. Kafka's own reader is asked in
tests/integration/test_translate_link.py.
"""

from __future__ import annotations

from mirror.mirrormaker.core.mirror_maker_records import Checkpoint, Heartbeat, OffsetSync


def test_a_heartbeat_names_both_clusters_and_the_time() -> None:
    beat = Heartbeat(source_alias="a", target_alias="bb", timestamp_ms=258)
    assert beat.key == b"\0\1a\0\2bb"
    assert beat.value == b"\0\0" + b"\0\0\0\0\0\0\1\2"


def test_a_checkpoint_has_both_offsets_and_the_metadata() -> None:
    checkpoint = Checkpoint(group="g", topic="a.t", partition=3, upstream_offset=1, downstream_offset=2, metadata="m")
    assert checkpoint.key == b"\0\1g\0\3a.t\0\0\0\3"
    assert checkpoint.value == b"\0\0" + bytes(7) + b"\1" + bytes(7) + b"\2" + b"\0\1m"


def test_offset_sync_has_no_version() -> None:
    sync = OffsetSync(topic="t", partition=0, upstream_offset=1, downstream_offset=2)
    assert sync.key == b"\0\1t\0\0\0\0"
    assert sync.value == bytes(7) + b"\1" + bytes(7) + b"\2"
