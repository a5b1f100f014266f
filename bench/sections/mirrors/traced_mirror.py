"""A mirror of ours that notes when it asked for batches, got them, sent them and was answered:
`python -m bench.sections.mirrors.traced_mirror FILE TRACE`.

The daemon is the one of `antipode mirror`; only the ports to the two sites are wrapped. The
wrappers parse nothing, and store their numbers in arrays, which the garbage collector does not
scan. They are written to the .npz file TRACE when the daemon ends.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.sections.mirrors.hops import Way
from mirror.exact_ends import ExactEnds
from mirror.link.ports import AppendAnswer, AppendPart, AppendPort, FetchAnswer, FetchParts, FetchPort
from mirror.main import MirrorDaemon
from mirror.settings.config import MirrorConfig, load_config
from runtime.configuration import read_properties
from runtime.logs import configure
from runtime.process import run_daemon
from wire.protocol.ids import TopicPartition

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Notes:
    """Batches in the order in which they passed: topic (numbered by first appearance), partition,
    first offset, and two times.
    """

    topic: array[int] = field(default_factory=_column)
    partition: array[int] = field(default_factory=_column)
    first_offset: array[int] = field(default_factory=_column)
    began_ns: array[int] = field(default_factory=_column)
    ended_ns: array[int] = field(default_factory=_column)

    def add(self, topic: int, partition: int, first_offset: int, began_ns: int) -> None:
        """One batch, at this moment."""
        self.topic.append(topic)
        self.partition.append(partition)
        self.first_offset.append(first_offset)
        self.began_ns.append(began_ns)
        self.ended_ns.append(time.monotonic_ns())


class Trace:
    """The notes of one mirror."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._notes = {"fetch": Notes(), "append": Notes()}

    def add(self, kind: str, key: TopicPartition, first_offset: int, began_ns: int) -> None:
        """A batch has passed the port of this kind."""
        self._notes[kind].add(
            self._topics.setdefault(key.topic, len(self._topics)), key.partition, first_offset, began_ns
        )

    def write(self, path: Path) -> None:
        """All of it."""
        import numpy as np

        columns = {
            f"{kind}_{name}": np.array(getattr(notes, name), dtype=np.int64)
            for kind, notes in self._notes.items()
            for name in Notes.__slots__
        }
        np.savez(path, topics=np.array(list(self._topics), dtype=np.str_), **columns)  # type: ignore[arg-type]


def read_ways(path: Path, topic: str, partition: int) -> tuple[Way, Way]:
    """The fetches and the appends of one partition, by offset."""
    import numpy as np

    with np.load(path) as stored:
        columns = {name: stored[name] for name in stored.files}
    at = list(columns["topics"]).index(topic)
    return _way("fetch", columns, at, partition), _way("append", columns, at, partition)


def _way(kind: str, columns: Mapping[str, NDArray[int64]], topic: int, partition: int) -> Way:
    import numpy as np

    chosen = (columns[f"{kind}_topic"] == topic) & (columns[f"{kind}_partition"] == partition)
    order = np.argsort(columns[f"{kind}_first_offset"][chosen], kind="stable")
    first_offset, began_ns, ended_ns = (
        columns[f"{kind}_{name}"][chosen][order] for name in ("first_offset", "began_ns", "ended_ns")
    )
    return Way(first_offset=first_offset, began_ns=began_ns, ended_ns=ended_ns)


class TracedFetch:
    """A FetchPort that records when each answer with batches was requested, and when it arrived."""

    def __init__(self, port: FetchPort, trace: Trace) -> None:
        self._port = port
        self._trace = trace

    async def fetch(
        self,
        node_id: int,
        parts: FetchParts,
        *,
        changed: Collection[TopicPartition] | None = None,
        is_brief: bool = False,
    ) -> Sequence[FetchAnswer]:
        """Fetch from the port, and record the time."""
        began_ns = time.monotonic_ns()
        offsets = {key: part.offset for key, part in parts.items()}
        answers = await self._port.fetch(node_id, parts, changed=changed, is_brief=is_brief)
        for answer in answers:
            if answer.records:
                self._trace.add("fetch", answer.key, offsets[answer.key], began_ns)
        return answers

    async def close(self) -> None:
        """Close the port."""
        await self._port.close()


class TracedAppend:
    """An AppendPort that records when batches were sent, and when they were acknowledged."""

    def __init__(self, port: AppendPort, trace: Trace) -> None:
        self._port = port
        self._trace = trace

    async def append(
        self, node_id: int, *, link: str, link_epoch: int, parts: Sequence[AppendPart]
    ) -> Sequence[AppendAnswer]:
        """Append to the port, and record the time."""
        began_ns = time.monotonic_ns()
        answers = await self._port.append(node_id, link=link, link_epoch=link_epoch, parts=parts)
        for part in parts:
            if part.records:
                self._trace.add("append", part.key, part.expected_log_end_offset, began_ns)
        return answers

    async def close(self) -> None:
        """Close the port."""
        await self._port.close()


class TracedEnds(ExactEnds):
    """Exact ends whose ports record the batches that pass them."""

    def __init__(self, config: MirrorConfig, *, trace: Trace, **arguments: Any) -> None:
        super().__init__(config, **arguments)
        self._trace = trace

    def open_fetch(self) -> FetchPort:
        """Open a traced connection to the source."""
        return TracedFetch(super().open_fetch(), self._trace)

    def open_append(self) -> AppendPort:
        """Open a traced connection to the target."""
        return TracedAppend(super().open_append(), self._trace)


async def run(config: MirrorConfig, path: Path, stop: asyncio.Event) -> None:
    """Mirror until `stop`, then write the trace."""
    trace = Trace()
    daemon = MirrorDaemon(config, exact_ends=partial(TracedEnds, trace=trace))
    await daemon.start()
    await stop.wait()
    await daemon.stop()
    trace.write(path)


if __name__ == "__main__":
    configure("mirror")
    properties = read_properties(Path(sys.argv[1]))
    sys.exit(run_daemon(lambda stop: run(load_config(properties), Path(sys.argv[2]), stop)))
