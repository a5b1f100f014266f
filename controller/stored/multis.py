"""Steps of transactions in as few multis as ZooKeeper takes. Pure; caller: `cluster_writer.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runtime.zookeeper.nodes import CreateNode, SetNode, TransactionStep

MULTI_BYTES_MAX = 700_000
"""Upper bound of one multi request, below ZooKeeper's 1 MiB (`jute.maxbuffer`), with room for its
framing.
"""

STEP_OVERHEAD_BYTES = 100
"""Framing, access list and flags of one step of a multi, rounded up."""


def split_steps(
    steps: Iterable[TransactionStep], *, bytes_max: int = MULTI_BYTES_MAX
) -> Iterator[list[TransactionStep]]:
    """The steps in order, in as few multis as their size allows."""
    chunk: list[TransactionStep] = []
    size = 0
    for step in steps:
        step_size = STEP_OVERHEAD_BYTES + len(step.path)
        if isinstance(step, CreateNode | SetNode):
            step_size += len(step.value)
        if chunk and size + step_size > bytes_max:
            yield chunk
            chunk, size = [], 0
        chunk.append(step)
        size += step_size
    if chunk:
        yield chunk
