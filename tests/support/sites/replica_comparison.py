"""Compares the logs of a site's replicas on disk batch by batch, and determines their leaders from
the brokers' logs.

Called when all writes have ended; the bytes come from the segment files, independently of the
brokers' own reports.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise

from tests.support.sites.replicated_site import ReplicatedSite
from wire.batches.record_batch import BatchHeader, iterate_headers

_LEADERSHIP = re.compile(
    r"event=partitions topic=(?P<topic>\S+) leader=(?P<leader>-?\d+) leader_epoch=(?P<epoch>\d+) role=\S+"
    r' partitions="?\[(?P<partitions>[^\]]*)\]'
)


def check_replicas(site: ReplicatedSite, topic: str, partitions: int) -> int:
    """Every replica has the same batches, without a gap between offsets and with epochs that never
    fall; the number of records.
    """
    records = 0
    for partition in range(partitions):
        contents = site.contents(topic, partition)
        batches = {node: _batches(content) for node, content in contents.items()}
        first, *others = batches
        for other in others:
            for ours, theirs in zip(batches[first], batches[other], strict=False):
                assert ours == theirs, f"{topic}-{partition}: {first} has {ours[0]}, {other} has {theirs[0]}"
            ends = len(batches[first]), len(batches[other])
            assert ends[0] == ends[1], f"{topic}-{partition}: {first} and {other} have {ends} batches"
        headers = [header for header, _ in batches[first]]
        for before, after in pairwise(headers):
            assert after.base_offset == before.next_offset, f"{topic}-{partition}: {after} follows {before}"
            assert after.partition_leader_epoch >= before.partition_leader_epoch, f"{topic}-{partition}: {after}"
        records += sum(header.record_count for header in headers)
    return records


def _batches(content: bytes) -> list[tuple[BatchHeader, bytes]]:
    return [(header, content[position : position + header.size_bytes]) for position, header in iterate_headers(content)]


def check_leaderships(site: ReplicatedSite) -> int:
    """No leader epoch of a partition has had two leaders, in the eyes of any two brokers; the
    number of epochs.
    """
    leaders: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for node in site.nodes.values():
        text = node.process.log_text()
        assert "InvariantBroken" not in text, node.process.child.log
        for found in _LEADERSHIP.finditer(text):
            for partition in found["partitions"].split(", "):
                leaders[found["topic"], partition, found["epoch"]].add(found["leader"])
    doubled = {epoch: nodes for epoch, nodes in leaders.items() if len(nodes) > 1}
    assert not doubled, f"leader epochs with several leaders: {doubled}"
    assert leaders
    return len(leaders)
