"""The target of a translate link as if it were an exact one: topics by the source's names, logs and
groups in the source's offsets.

Flows, queue, producers and syncs then work as they do between two Antipode sites; they never see
the target's own offsets. The differences of such a target are here and in `translated_append.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from mirror.link.core.committed_offsets import REMOVED, GroupOffset, LastInSync
from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.link.core.topic_plan import Action, AlterConfigs, CreateTopic, DeleteCopy, GrowTopic
from mirror.link.group_ports import GroupReading, GroupStates
from mirror.link.ports import Leader, LogAnswer, LogEnds, Refused, SiteTopic, Unreachable
from mirror.sites.kafka_site import KafkaSite, reached
from mirror.translate.notes.group_notes import GroupNotes
from mirror.translate.opposite_links import OppositeLinks
from mirror.translate.tail_reader import TailReader
from mirror.translate.target_places import TargetPlaces
from mirror.translate.translations import Translations
from runtime.logs import get_logger
from wire.batches.log_histories import EpochEnd
from wire.client.client_errors import KafkaClientError
from wire.client.client_errors import Unreachable as NotReached
from wire.client.raw_client import KafkaClient, NewTopic, TopicOutcome
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import PartitionKey, TopicPartition
from wire.rules.sync_reports import SyncReport

_log = get_logger("mirror.translate")


class TranslatedTarget:
    """SitePort, GroupPort and TopicActor."""

    def __init__(
        self,
        *,
        source: KafkaSite,
        target: KafkaSite,
        client: KafkaClient,
        naming: Naming,
        translations: Translations,
        tails: TailReader,
        opposite: OppositeLinks,
        group_notes: GroupNotes,
        carries: Callable[[str], bool],
        replication_factor: int,
        is_syncing_configs: bool,
    ) -> None:
        self._carries = carries
        self.places = TargetPlaces(naming, translations, opposite)
        self._group_notes = group_notes
        # The groups' offsets at the target, as last read there.
        self._read: dict[str, Mapping[TopicPartition, GroupOffset]] = {}
        self._is_syncing_configs = is_syncing_configs
        self._source = source
        self._target = target
        self._client = client
        self._naming = naming
        self._translations = translations
        self._tails = tails
        self._replication_factor = replication_factor
        self._sources_topics: Mapping[str, SiteTopic] | None = None

    # Topics.

    async def topics(self) -> Mapping[str, SiteTopic]:
        """The copies of the source's topics, by the source's names and, where the copy is theirs,
        under the source's ids.

        This includes partitions whose topic is gone from the source, so that this is reported.
        """
        ours, theirs = await asyncio.gather(self._topics_of_source(), self._target.topics())
        found: dict[str, SiteTopic] = {}
        for name, topic in ours.items():
            copy = theirs.get(self._naming.target_name(name))
            if copy is not None and self._carries(name) and self._other_of(name, ours) is None:
                # Additional partitions at the target do no harm: the first ones are the copies.
                leaders = {index: leader for index, leader in copy.leaders.items() if index in topic.leaders}
                source_id = await self._bound_id(name, topic.topic_id, copy.topic_id)
                found[name] = SiteTopic(topic_id=source_id, leaders=leaders)
        for binding in self._translations.bindings:
            copy = theirs.get(binding.target)
            if copy is None or copy.topic_id != binding.target_id or binding.topic in ours:
                continue
            if self._naming.target_name(binding.topic) == binding.target:
                found[binding.topic] = SiteTopic(topic_id=binding.source_id, leaders=copy.leaders)
        return found

    def _other_of(self, name: str, ours: Collection[str]) -> str | None:
        """Another topic of the source whose copy already has the target name of this one; a table
        of names can cause this.
        """
        target = self._naming.target_name(name)
        bound = [one.topic for one in self._translations.bindings if one.target == target and one.topic != name]
        return next((other for other in bound if other in ours and self._naming.target_name(other) == target), None)

    async def _topics_of_source(self) -> Mapping[str, SiteTopic]:
        """Return the source's topics, or the last known ones while the source does not answer:
        batches fetched earlier still need their copies' leaders.
        """
        try:
            self._sources_topics = await self._source.topics()
        except Unreachable:
            if self._sources_topics is None:
                raise
        return self._sources_topics

    async def _bound_id(self, name: str, source_id: UUID, target_id: UUID) -> UUID:
        """The id of the source's topic that the copy is of. A copy that is new is bound to the
        present topic.
        """
        binding = self._translations.binding(name)
        target = self._naming.target_name(name)
        if binding is not None and (binding.target, binding.target_id) == (target, target_id):
            return binding.source_id
        if binding is not None:
            _log.warning("the target's topic was replaced by another one: it is mirrored from the start", topic=name)
            self._group_notes.forget_topic(target)
        await self._translations.bind(name, source_id, target, target_id)
        return source_id

    async def configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """The configs that are set on the copies; the source's own where none must change."""
        if not self._is_syncing_configs:
            return await self._source.configs(names)
        by_target = {self._naming.target_name(name): name for name in names}
        found = await self._target.configs(sorted(by_target))
        return {by_target[target]: configs for target, configs in found.items()}

    async def act(self, actions: Sequence[Action], *, link: str, link_epoch: int) -> Sequence[str]:  # noqa: ARG002 (no epochs here)
        """Do actions of one kind; for each empty when done (or done before), else why it was
        refused.
        """
        creations = [action for action in actions if isinstance(action, CreateTopic)]
        try:
            if creations:
                return await self._create(creations)
            return [_refusal(await self._act(action)) for action in actions]
        except NotReached as error:
            raise Unreachable(str(error)) from error
        except KafkaClientError as error:
            return [str(error)] * len(actions)

    async def _create(self, creations: Sequence[CreateTopic]) -> Sequence[str]:
        asked: dict[str, str] = {}
        taken: dict[str, str] = {}
        for action in creations:
            target = self._naming.target_name(action.name)
            other = self._other_of(action.name, self._sources_topics or {}) or asked.get(target)
            if other is None:
                asked[target] = action.name
            else:
                taken[action.name] = (
                    f"topic {target} of the target is the copy of {other}; two topics cannot have one copy"
                )
        new = [self._new_topic(action) for action in creations if action.name not in taken]
        outcomes = {outcome.name: outcome for outcome in await self._client.create_topics(new)} if new else {}
        return [
            taken.get(action.name) or _refusal(outcomes.get(self._naming.target_name(action.name)))
            for action in creations
        ]

    def _new_topic(self, action: CreateTopic) -> NewTopic:
        return NewTopic(
            name=self._naming.target_name(action.name),
            partition_count=action.partition_count,
            replication_factor=self._replication_factor,
            configs=action.configs,
        )

    async def _act(self, action: Action) -> TopicOutcome:
        target = self._naming.target_name(action.name)
        match action:
            case CreateTopic():
                (outcome,) = await self._client.create_topics([self._new_topic(action)])
                return outcome
            case GrowTopic():
                return await self._client.grow_topic(target, action.partition_count)
            case DeleteCopy():
                message = (
                    f"a translate link deletes nothing: delete topic {target} at the target, and it is mirrored anew"
                )
                return TopicOutcome(
                    name=target, error_code=ErrorCode.policy_violation, error_message=message, topic_id=None
                )
            case AlterConfigs():
                return await self._client.alter_topic_configs(target, to_set=action.set, to_remove=action.remove)

    # Logs.

    async def log_ends(self, leaders: Mapping[TopicPartition, Leader]) -> Mapping[TopicPartition, LogAnswer]:
        """Return how far each partition is mirrored, in the source's offsets; read the target's
        tail where this is unknown.
        """
        ends: dict[TopicPartition, LogAnswer] = {}

        async def ask() -> Mapping[TopicPartition, LogAnswer]:
            ends.update(await self._ends(leaders))
            return ends

        positions = await self._tails.positions(leaders, ask)
        with contextlib.suppress(Unreachable):  # The notes of opposite links may be outdated.
            await self.places.refresh(self._sources_topics or {})
        return {key: self._from_the_start(key, answer, ends.get(key, answer)) for key, answer in positions.items()}

    async def _ends(self, leaders: Mapping[TopicPartition, Leader]) -> Mapping[TopicPartition, LogAnswer]:
        """The target's own log ends, by the source's names."""
        renamed = {self.places.at_target(key): leader for key, leader in leaders.items()}
        ends = await self._target.log_ends(renamed)
        found: dict[TopicPartition, LogAnswer] = {}
        for key in leaders:
            end = ends.get(self.places.at_target(key))
            if end is not None:
                found[key] = end
            if isinstance(end, LogEnds):
                self._translations.note_target_start(key, end.log_start_offset)
        return found

    def _from_the_start(self, key: TopicPartition, position: LogAnswer, end: LogAnswer) -> LogAnswer:
        """The position, with the target's log start as groups count: records that an opposite link
        has taken from there count too.
        """
        if not isinstance(position, LogEnds) or not isinstance(end, LogEnds):
            return position
        start = self.places.upstream(key, end.log_start_offset)
        return position if start is None else replace(position, log_start_offset=start)

    async def epoch_ends(
        self,
        asked: Mapping[TopicPartition, tuple[Leader, int]],
    ) -> Mapping[TopicPartition, EpochEnd | Refused | Unreachable]:
        """The target's epochs prove nothing about the source's history."""
        return dict.fromkeys(asked, EpochEnd(-1, -1))

    # Groups.

    async def groups(self) -> GroupStates:
        """Groups by id with their state."""
        states = await self._target.groups()
        if not states.problems:
            self._read = {group: read for group, read in self._read.items() if group in states.by_group}
        return states

    async def offsets(self, group: str) -> Mapping[TopicPartition, GroupOffset]:
        """The group's offsets in copies, as offsets of the source."""
        return (await self.offsets_of([group])).by_group.get(group, {})

    async def offsets_of(self, groups: Sequence[str]) -> GroupReading:
        """Return the offsets of several groups at once, like `offsets`."""
        await self.places.refresh(self._sources_topics or {})
        found = await self._target.offsets_of(groups)
        self._read |= found.by_group
        by_target = {self.places.at_target(key): key for key, _ in self._translations.known()}
        known: dict[str, dict[TopicPartition, GroupOffset]] = {}
        last_in_sync: dict[str, dict[TopicPartition, LastInSync]] = {}
        for group, offsets in found.by_group.items():
            known[group], last_in_sync[group] = {}, {}
            for at_target, at in offsets.items():
                key = by_target.get(at_target)
                if key is None:
                    continue
                note = self._group_notes.of(group, at_target)
                if note is not None:
                    last_in_sync[group][key] = LastInSync(note.source_offset, note.target_offset == at.offset)
                offset = self._as_noted(group, key, at.offset)
                if offset is not None:
                    known[group][key] = GroupOffset(offset, -1, at.metadata)
        return GroupReading(known, found.problems, last_in_sync)

    def _as_noted(self, group: str, key: TopicPartition, target_offset: int) -> int | None:
        """The source's offset for a group's offset at the target; the noted one where the group has
        not moved.

        Between two records there are several of the source for one of the target.
        """
        note = self._group_notes.of(group, self.places.at_target(key))
        is_unmoved = note is not None and note.target_offset == target_offset
        if note is None or not is_unmoved or self._is_short(group, key, note.source_offset):
            return self.places.upstream(key, target_offset)
        return note.source_offset

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, GroupOffset],
        *,
        link: str,  # noqa: ARG002
        link_epoch: int,  # noqa: ARG002
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Commit for a group without members; the source's leader epochs mean nothing here and are
        left out.

        Offsets that the source has removed expire by the target's own retention; offsets that
        cannot be translated are skipped.
        """
        await self.places.refresh(self._sources_topics or {})
        wanted: dict[PartitionKey, CommittedOffset] = {}
        for key, at in offsets.items():
            if at.offset == REMOVED.offset:
                self._group_notes.forget(group, self.places.at_target(key))
                continue
            offset = self.places.downstream(key, at.offset)
            if offset is not None and not self._is_passed(group, key, at.offset, offset):
                wanted[self.places.at_target(key)] = CommittedOffset(offset, -1, at.metadata)
        outcomes = await reached(self._client.commit(group, wanted)) if wanted else {}
        for key, at in offsets.items():
            place = self.places.at_target(key)
            if place in wanted and outcomes.get(place) is ErrorCode.none:
                self._group_notes.note(group, place, source_offset=at.offset, target_offset=wanted[place].offset)
        # skipped offsets count as committed: they have no translation yet, or the group is ahead
        # there
        skipped = {self.places.at_target(key) for key in offsets} - wanted.keys()
        outcomes |= dict.fromkeys(skipped, ErrorCode.none)
        return {key: outcomes.get(self.places.at_target(key), ErrorCode.unknown_server_error) for key in offsets}

    def _is_passed(self, group: str, key: TopicPartition, source_offset: int, offset: int) -> bool:
        """True if a step forward at the source would be a step back at the target: with an outdated
        map of the opposite link the translated offset is too small.
        """
        read = self._read.get(group, {}).get(self.places.at_target(key))
        if read is None or offset >= read.offset:
            return False
        known = self._as_noted(group, key, read.offset)
        return known is not None and source_offset > known

    @property
    def keeps_offsets(self) -> bool:
        """False: the target's own retention time counts."""
        return False

    async def carried(self, groups: Sequence[str], **_: object) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]:  # noqa: ARG002
        """None: offsets that the source has removed expire at the target."""
        return {}

    def note_in_sync(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Store the pair for the next daemon if each offset translates to the other: with an
        outdated map, different positions could seem equal.
        """
        read = self._read.get(group, {})
        for key, at in offsets.items():
            place = self.places.at_target(key)
            if place in read and self.places.downstream(key, at.offset) == read[place].offset:
                self._group_notes.note(group, place, source_offset=at.offset, target_offset=read[place].offset)

    async def outgrown(self, carried: Mapping[str, Mapping[TopicPartition, GroupOffset]]) -> Sequence[str]:
        """The groups whose notes are too far behind at the target; none where copies are separate
        topics.
        """
        if self._naming.policy is NamingPolicy.PREFIX:
            return ()
        await self.places.refresh(self._sources_topics or {})
        return [
            group
            for group, offsets in carried.items()
            if any(self._is_short(group, key, at.offset) for key, at in offsets.items())
        ]

    def _is_short(self, group: str, key: TopicPartition, source_offset: int) -> bool:
        """Whether the note of a group with this offset at the source is now too far back at the
        target, and the group has not moved.
        """
        place = self.places.at_target(key)
        note, read = self._group_notes.of(group, place), self._read.get(group, {}).get(place)
        if (
            note is None
            or note.source_offset != source_offset
            or (read is not None and read.offset > note.target_offset)
        ):
            return False
        offset = self.places.downstream(key, source_offset)
        return offset is not None and offset > note.target_offset

    async def send_report(self, report: SyncReport, *, link: str, link_epoch: int) -> None:
        """Do nothing: a translate target receives no reports."""

    async def close(self) -> None:
        """Drop the connections."""
        await self._target.close()
        await self._client.close()


def _refusal(outcome: TopicOutcome | None) -> str:
    """Empty when the change is done, or was done before."""
    if outcome is None:
        return "no answer"
    if outcome.error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
        return ""
    return f"{outcome.error_code.name} {outcome.error_message or ''}".strip()
