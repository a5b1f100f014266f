"""Steps of transactions in as few multis as ZooKeeper takes. Pure; caller: `cluster_writer.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from runtime.zookeeper.nodes import CreateNode, SetNode, TransactionStep

MULTI_BYTES_MAX = 200_000
"""Upper bound of one multi request, far below ZooKeeper's 1 MiB (`jute.maxbuffer`): heartbeats of
all sessions wait behind a multi, and a thousand new znodes take a cold ZooKeeper some 100 ms.
"""

STEP_OVERHEAD_BYTES = 100
"""Framing, access list and flags of one step of a multi, rounded up."""


def split_steps(
    groups: Iterable[Sequence[TransactionStep]], *, bytes_max: int = MULTI_BYTES_MAX
) -> Iterator[list[TransactionStep]]:
    """The steps in order, in as few multis as their size allows. The steps of a group are in one
    multi, unless the group alone is larger than a multi.
    """
    chunk: list[TransactionStep] = []
    size = 0
    for group in groups:
        sizes = [_size(step) for step in group]
        if chunk and size + sum(sizes) > bytes_max:
            yield chunk
            chunk, size = [], 0
        for step, step_size in zip(group, sizes, strict=True):
            if chunk and size + step_size > bytes_max:
                yield chunk
                chunk, size = [], 0
            chunk.append(step)
            size += step_size
    if chunk:
        yield chunk


def _size(step: TransactionStep) -> int:
    value = len(step.value) if isinstance(step, CreateNode | SetNode) else 0
    return STEP_OVERHEAD_BYTES + len(step.path) + value
