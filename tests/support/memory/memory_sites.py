"""Two sites in memory behind the mirror's ports: logs of real batches, a target that answers by the
table of MirrorAppend.

For tests of the mirror's shells without sockets: a site can be down, calls can raise, answers can
be held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kio.schema.errors import ErrorCode

from mirror.link.core.committed_offsets import REMOVED, GroupOffset, LastInSync
from mirror.link.core.partitions import survey
from mirror.link.core.topic_plan import Absence, Action, AlterConfigs, CreateTopic, DeleteCopy
from mirror.link.group_ports import GroupReading, GroupStates
from mirror.link.ports import (
    EndToKeep,
    Leader,
    LogEnds,
    Refused,
    SiteTopic,
    TruncatedCopy,
    Unreachable,
)
from tests.support.disks.log_batches import batch
from wire.batches.log_histories import EpochEnd
from wire.batches.record_batch import read_header
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import SyncReport


@dataclass
class MemoryLog:
    """One partition's batches."""

    start: int = 0
    batches: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return survey(self.batches[-1]).next_offset if self.batches else self.start  # type: ignore[union-attr]

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)

    def last_epoch(self) -> int:
        return survey(self.batches[-1]).last_epoch if self.batches else -1  # type: ignore[union-attr]

    def epoch_end(self, epoch: int) -> EpochEnd:
        found = -1
        end = -1
        for one in self.batches:
            run = survey(one)
            assert run is not None
            if run.last_epoch <= epoch:
                found, end = run.last_epoch, run.next_offset
        return EpochEnd(found, end)


class MemorySite:
    """SitePort, GroupPort and TopicActor."""

    def __init__(self, name: str, node_id: int) -> None:
        self.name = name
        self.leader = Leader(node_id, 0)
        self.ids: dict[str, UUID] = {}
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.group_offsets: dict[str, dict[TopicPartition, GroupOffset]] = {}
        self.group_states: dict[str, str] = {}
        self.moving_groups: set[str] = set()
        self.group_problems: dict[str, str] = {}
        # The error of commits, by group.
        self.commit_errors: dict[str, ErrorCode] = {}
        self.held_commits: dict[str, asyncio.Event] = {}
        self.held_listing: asyncio.Event | None = None
        """Lists of groups, and reports, are answered only when it is set."""
        self.offset_requests = 0
        # How often its groups were listed.
        self.group_rounds = 0
        # Where groups were seen to stand alike at the source and here; None: the site keeps nothing
        # of that.
        self.noted_alike: dict[str, dict[TopicPartition, GroupOffset]] | None = None
        self.outgrown_groups: set[str] = set()
        # The link epoch at which a mirror wrote the offset of a group, and that offset.
        self.carried_offsets: dict[tuple[str, TopicPartition], tuple[int, GroupOffset]] = {}
        # Groups' offsets that came from the target.
        self.from_target: dict[str, set[TopicPartition]] = {}
        self.synced_at_ms = -1
        # Topics that are not shown, and those that a list just lacks.
        self.hidden: set[str] = set()
        self.unlisted: set[str] = set()
        self.hidden_configs: set[str] = set()
        # The daemons' reports on groups' offsets.
        self.words: list[SyncReport] = []
        self.commits: list[tuple[str, TopicPartition, int]] = []
        self.is_up = True
        # The error of the site's controller for every request; empty: it carries them out.
        self.refusal = ""
        # The same by topic.
        self.refusals: dict[str, str] = {}
        # The actions of each request to the controller.
        self.requests: list[tuple[Action, ...]] = []
        # Records that were kept before a deletion: batches by offset, by partition and topic id;
        # and the answers to these requests.
        self.quarantined: dict[tuple[TopicPartition, UUID], dict[int, bytes]] = {}
        self.quarantine_refusal = ""
        # Runs in front of each such wish and may raise.
        self.before_keep: Callable[[], None] = lambda: None
        # Runs in front of each request to the controller and may raise.
        self.before_act: Callable[[], None] = lambda: None
        self.changed = asyncio.Event()

    def add(self, topic: str, partitions: int, *, number: int = 1) -> None:
        self.ids[topic] = UUID(int=number)
        for partition in range(partitions):
            self.logs.setdefault(TopicPartition(topic, partition), MemoryLog())

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        for key in [key for key in self.logs if key.topic == topic]:
            del self.logs[key]

    def produce(self, topic: str, partition: int, count: int = 1, *, epoch: int = 0) -> None:
        log = self.logs[TopicPartition(topic, partition)]
        for _ in range(count):
            log.batches.append(batch([b"value"] * 3, base_offset=log.end, leader_epoch=epoch))
        self.changed.set()

    def _check(self) -> None:
        if not self.is_up:
            raise Unreachable(f"site {self.name} is down")

    async def topics(self) -> Mapping[str, SiteTopic]:
        self._check()
        return {
            topic: SiteTopic(
                topic_id=topic_id,
                leaders={key.partition: self.leader for key in self.logs if key.topic == topic},
            )
            for topic, topic_id in self.ids.items()
            if topic not in self.hidden | self.unlisted
        }

    async def absences(self, names: Sequence[str]) -> Mapping[str, Absence]:
        self._check()
        of_others = {name: Absence.UNSURE if name in self.ids else Absence.GONE for name in names}
        return of_others | {name: Absence.HIDDEN for name in names if name in self.hidden}

    async def configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        self._check()
        shown = [name for name in names if name in self.ids and name not in self.hidden_configs]
        return {name: self.topic_configs.get(name, {}) for name in shown}

    async def log_ends(
        self, leaders: Mapping[TopicPartition, Leader]
    ) -> Mapping[TopicPartition, LogEnds | Refused | Unreachable]:
        if not self.is_up:
            return dict.fromkeys(leaders, Unreachable(f"site {self.name} is down"))
        return {
            key: LogEnds(
                log_start_offset=self.logs[key].start,
                end_offset=self.logs[key].end,
                last_epoch=self.logs[key].last_epoch(),
            )
            for key in leaders
        }

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[Leader, int]]
    ) -> Mapping[TopicPartition, EpochEnd | Refused | Unreachable]:
        if not self.is_up:
            return dict.fromkeys(asked, Unreachable(f"site {self.name} is down"))
        return {key: self.logs[key].epoch_end(epoch) for key, (_, epoch) in asked.items()}

    async def groups(self) -> GroupStates:
        self._check()
        if self.held_listing is not None:
            await self.held_listing.wait()
        self.group_rounds += 1
        return GroupStates(
            {group: self.group_states.get(group, "Empty") for group in self.group_offsets}, self.group_problems
        )

    async def offsets(self, group: str) -> Mapping[TopicPartition, GroupOffset]:
        self._check()
        return dict(self.group_offsets.get(group, {}))

    async def offsets_of(self, groups: Sequence[str]) -> GroupReading:
        self.offset_requests += 1
        out = {*self.moving_groups, *self.group_problems}
        problems = {group: self.group_problems[group] for group in groups if group in self.group_problems}
        found = {group: await self.offsets(group) for group in groups if group not in out}
        last_in_sync = {
            group: {key: LastInSync(at.offset, found[group].get(key) == at) for key, at in noted.items()}
            for group, noted in (self.noted_alike or {}).items()
            if group in found
        }
        return GroupReading(found, problems, last_in_sync, self.from_target)

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, GroupOffset], *, link: str, link_epoch: int
    ) -> Mapping[TopicPartition, ErrorCode]:
        self._check()
        if group in self.group_problems:
            raise Unreachable(self.group_problems[group])
        if group in self.commit_errors:
            return dict.fromkeys(offsets, self.commit_errors[group])
        if group in self.held_commits:
            await self.held_commits[group].wait()
        kept = self.group_offsets.setdefault(group, {})
        known = dict(kept)
        kept.update(offsets)
        for key in [key for key, offset in offsets.items() if offset.offset == REMOVED.offset]:
            before = known.get(key)
            if before is not None and offsets[key].metadata not in ("", str(before.offset)):
                kept[key] = before
            else:
                del kept[key]
        self.carried_offsets.update({(group, key): (link_epoch, at) for key, at in kept.items() if key in offsets})
        self.note_in_sync(group, offsets)
        self.commits += [(group, key, offset.offset) for key, offset in offsets.items()]
        return dict.fromkeys(offsets, ErrorCode.none)

    @property
    def keeps_offsets(self) -> bool:
        return self.noted_alike is None

    async def carried(
        self, groups: Sequence[str], *, link: str, link_epoch: int
    ) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]:
        self._check()
        return {
            group: {
                key: at
                for key, at in self.group_offsets.get(group, {}).items()
                if self.carried_offsets.get((group, key)) == (link_epoch, at)
            }
            for group in groups
            if group not in self.moving_groups
        }

    def note_in_sync(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        if self.noted_alike is not None:
            self.noted_alike.setdefault(group, {}).update(offsets)

    async def outgrown(self, carried: Mapping[str, Mapping[TopicPartition, GroupOffset]]) -> Sequence[str]:
        self._check()
        return [group for group in carried if group in self.outgrown_groups]

    async def send_report(self, word: SyncReport, *, link: str, link_epoch: int) -> None:
        self._check()
        if self.held_listing is not None:
            await self.held_listing.wait()
        self.words.append(word)
        self.synced_at_ms = max(self.synced_at_ms, word.synced_at_ms or -1)

    async def keep(
        self,
        ends: Mapping[TopicPartition, EndToKeep],
        *,
        link: str,
        link_epoch: int,
        reason: str,
    ) -> Mapping[TopicPartition, str]:
        self._check()
        self.before_keep()
        refused = dict.fromkeys(ends, self.quarantine_refusal)
        for key, end in ends.items():
            if self.quarantine_refusal or self.ids.get(key.topic) != end.topic_id:
                continue
            batches = [one for one in self.logs[key].batches if read_header(one).next_offset > end.first_offset]
            self.quarantined.setdefault((key, end.topic_id), {}).update(
                {read_header(one).base_offset: one for one in batches}
            )
        return refused

    async def keep_and_truncate(
        self, ends: Mapping[TopicPartition, EndToKeep], *, link: str, link_epoch: int, reason: str
    ) -> Mapping[TopicPartition, TruncatedCopy]:
        refusals = await self.keep(ends, link=link, link_epoch=link_epoch, reason=reason)
        self.before_act()
        found = {}
        for key, refusal in refusals.items():
            if refusal:
                found[key] = TruncatedCopy(refusal=refusal)
                continue
            log = self.logs[key]
            log.batches = [one for one in log.batches if read_header(one).next_offset <= ends[key].first_offset]
            found[key] = TruncatedCopy(log_end_offset=log.end, entry=f"entry of {key}")
        return found

    async def act(self, actions: Sequence[Action], *, link: str, link_epoch: int) -> Sequence[str]:
        self._check()
        self.before_act()
        self.requests.append(tuple(actions))
        return [self.refusals.get(action.name, self.refusal) or self._act(action) for action in actions]

    def _act(self, action: Action) -> str:
        if isinstance(action, DeleteCopy):
            if self.ids.get(action.name) == action.topic_id:
                self.delete(action.name)
            return ""
        if isinstance(action, CreateTopic):
            self.ids[action.name] = action.topic_id
            self.topic_configs[action.name] = dict(action.configs)
        if isinstance(action, AlterConfigs):
            configs = self.topic_configs.setdefault(action.name, {})
            configs.update(action.set)
            for name in action.remove:
                del configs[name]
            return ""
        for partition in range(action.partition_count):
            self.logs.setdefault(TopicPartition(action.name, partition), MemoryLog())
        return ""

    async def close(self) -> None:
        pass
