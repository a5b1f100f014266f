"""Keeps the target's topics equal to the source's, and the board up to date with both: discovery,
creation, new partitions, configs, leaders.

Each round reads the metadata of both sites, plans the changes (`mirror/link/core/topic_plan.py`),
requests them from the target's controller under the link's name, and puts every partition that both
sites have on the board with its leaders. Partitions that the controller refuses to create are on
the board too, with the reason. Configs are compared less often than topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from mirror.flow.board import FlowBoard
from mirror.flow.core import beginnings
from mirror.flow.core.flow_effects import Side
from mirror.flow.core.flow_events import RetryDue
from mirror.flow.core.flow_state import Step
from mirror.flow.retention_watch import RetentionWatch
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.refusals import Refusals
from mirror.link.core.topic_plan import (
    Absence,
    Action,
    AlterConfigs,
    CreateTopic,
    DeleteCopy,
    GrowTopic,
    NameAtTarget,
    TopicView,
    Trouble,
    nothing_carried,
    plan,
    requests_of,
)
from mirror.link.link_watch import LinkView
from mirror.link.ports import LogEnds, SitePort, SiteTopic, SourcePort, TopicActor
from mirror.link.round_pauses import DRAINING_INTERVAL_MS
from mirror.topics.asking import SiteUnreachable, asking
from mirror.topics.config_comparison import ConfigComparison
from mirror.topics.topic_board import TopicBoard
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import carries_topic
from wire.rules.sync_reports import CarriedAccess
from wire.rules.topic_configs import COPY_BEGINS

NOT_SHOWN_YET = "its controller reports that the topic exists, but its brokers do not show it: they may still be deleting the previous copy"
MADE_UNSEEN_MAX = 2
"""After this number of creations, a topic that still does not appear counts as refused."""

PAUSE_WHEN_POKED_S = 0.05
"""Pause before a requested round, so that many partitions that lose their leader cause only one
round.
"""

ROUNDS_APART = 4
"""A pause under the fence is at least this many times as long as the last round."""

ASKED_AGAIN_INITIAL_MS = 50
ASKED_AGAIN_MAX_MS = 1000
"""The longest wait for a copy's configs before they are asked for again."""

_log = get_logger("mirror.topics")


class BeginningsUnknown(Exception):
    """The target lists copies without their configs, so their first offsets are unknown."""


class TopicSync:
    """The task that keeps the target's topics equal to the source's; `poke` starts a round at
    once.
    """

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: SourcePort,
        target: SitePort,
        actor: TopicActor,
        link: Callable[[], LinkView],
        clock: Clock,
        interval_ms: int,
        config_interval_ms: int,
        excluded_configs: Sequence[str],
        keeps_beginnings: bool,
        on_topology: Callable[[], None],
        on_renewed: Callable[[str], None],
        name_at_target: NameAtTarget | None = None,
    ) -> None:
        self._name_at_target = name_at_target
        self._board = board
        self._source = source
        self._target = target
        self._actor = actor
        self._link = link
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._comparison = ConfigComparison(source, target, clock=clock, interval_ms=config_interval_ms)
        self._excluded_configs = excluded_configs
        self._keeps_beginnings = keeps_beginnings
        self._on_topology = on_topology
        self._placing = TopicBoard(
            board,
            link=link,
            keeps_beginnings=keeps_beginnings,
            on_topology=on_topology,
            on_renewed=on_renewed,
        )
        self._poked = asyncio.Event()
        # How long the last round took, in seconds.
        self._round_s = 0.0
        self._problem: SiteUnreachable | None = None
        self._last_of_target: Mapping[str, SiteTopic] | None = None
        # The first offset of each copy at the target, by topic and partition; 0 for partitions that
        # are not named.
        self._beginnings: dict[str, Mapping[int, int]] = {}
        # Copies that the target lists, but whose beginning it has not reported.
        self._without_beginning: frozenset[str] = frozenset()
        # How often a missing topic was created at the target.
        self._made: dict[str, int] = {}
        self.refusals = Refusals()
        self.retention = RetentionWatch(board)
        # A sentence while the source has topics and the link's filters carry none of them.
        self.nothing_carried = ""
        self.synced_at_ms = -1

    @property
    def problem(self) -> SiteUnreachable | None:
        """The reason why the last round could not compare the sites."""
        return self._problem

    @property
    def carried_configs(self) -> CarriedAccess:
        """The configs of the source's topics that are at the target."""
        return self._comparison.carried

    @property
    def troubles(self) -> Mapping[str, Trouble]:
        """Topics that cannot be mirrored, and why."""
        return self._placing.troubles

    def renew(self, topic: str) -> None:
        """The topic's copy was deleted: its replacement begins anew."""
        self._placing.renewed.add(topic)
        self._beginnings.pop(topic, None)
        self.poke()

    def poke(self) -> None:
        """Start a round at once."""
        self._poked.set()

    async def run(self) -> None:
        """Run a round in each interval until cancelled, and earlier while the target's answers are
        incomplete.
        """
        looking = jittered_backoff(
            retry_on=BeginningsUnknown,
            initial_ms=ASKED_AGAIN_INITIAL_MS,
            max_ms=min(ASKED_AGAIN_MAX_MS, self._interval_s * 1000),
        ).copy(sleep=self._pause)
        while True:
            await looking(self._look)
            await self._pause(self._interval_s if self._link().role is not LinkRole.DRAINING else self._draining_s)

    @property
    def _draining_s(self) -> float:
        """The pause under the fence: a move may wait for this task, but the last records need the
        processor more.
        """
        return min(self._interval_s, max(DRAINING_INTERVAL_MS / 1000, ROUNDS_APART * self._round_s))

    async def _look(self) -> None:
        """Repeat rounds as long as they change something. Raises BeginningsUnknown when another
        round should follow soon.
        """
        began_ms = self._clock.monotonic_ms()
        try:
            while await self.round():
                self._note_problem(None)
            self._note_problem(None)
            self._round_s = (self._clock.monotonic_ms() - began_ms) / 1000
        except SiteUnreachable as error:
            self._note_problem(error)
            return
        finally:
            self.retention.look()
        if self._without_beginning:
            raise BeginningsUnknown(", ".join(sorted(self._without_beginning)))

    async def round(self) -> bool:
        """Run one round; True when it changed the target, so that another round will see the
        change.
        """
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self.refusals.forget()
            self._comparison.forget()
            self._without_beginning = frozenset()
            return False
        source_topics, target_topics = await asyncio.gather(
            asking(Side.SOURCE, self._source.topics), self._target_topics()
        )
        source = {name: topic for name, topic in source_topics.items() if carries_topic(link.record, name)}
        target = {name: topic for name, topic in target_topics.items() if carries_topic(link.record, name)}
        configs = await self._comparison.read(source.keys(), target.keys(), link.role)
        self._report_filters(nothing_carried(link.record, source_topics))
        absences = await self._absences(sorted(target.keys() - source.keys()))
        wanted = plan(
            _views(source, configs.source),
            _views(target, configs.target),
            excluded_configs=self._excluded_configs,
            name_at_target=self._name_at_target,
            absences=absences,
        )
        await self._read_beginnings(wanted.agreed, target, configs.target)
        self._comparison.note_actions(wanted.actions)
        outcomes, has_changed = await self._act(await self._begun(wanted.actions, source), link)
        self._comparison.note_carried(configs)
        self._placing.update(source, target, wanted, self._beginnings)
        self._placing.report_tombstones(configs.source)
        self.retention.note(configs.source)
        self._apply_refusals(outcomes, source, target, compared=configs.source.keys() & configs.target.keys())
        # After the update, which needs to know which copies are new in this round.
        self._placing.keep_renewed(source.keys(), target.keys())
        self.synced_at_ms = self._clock.now_ms()
        return has_changed

    async def _target_topics(self) -> Mapping[str, SiteTopic]:
        """The target's topics. Their leaders go to the board at once, so that fetched batches are
        delivered even while the source does not answer.
        """
        topics = await asking(Side.TARGET, self._target.topics)
        # A partition whose leader is not known yet is restless.
        rows = self._board.restless_rows() if topics is self._last_of_target else list(self._board.rows())
        self._last_of_target = topics
        has_moved = False
        for key, row in rows:
            topic = topics.get(key.topic)
            leader = None if topic is None or topic.topic_id != row.topic_id else topic.leaders.get(key.partition)
            # A topic with another id is another topic: its leaders must not get batches of the old
            # one.
            if leader is not None and leader != row.target:
                row.target, has_moved = leader, True
                if row.facts.step is Step.WAITING:
                    self._board.submit(key, RetryDue(generation=row.facts.generation))
        if has_moved:
            self._on_topology()
        return topics

    async def _absences(self, names: Sequence[str]) -> Mapping[str, Absence]:
        """The reasons why the source did not list the topics of these copies."""
        return await asking(Side.SOURCE, lambda: self._source.absences(names)) if names else {}

    async def _read_beginnings(
        self, names: frozenset[str], target: Mapping[str, SiteTopic], configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Read the beginnings of the copies `names` from their configs, where they are unknown. A
        copy is not mirrored while the target cannot report its beginning.
        """
        if not self._keeps_beginnings:
            self._beginnings = {name: {} for name in names}
            return
        known = {name: begins for name, begins in self._beginnings.items() if name in target}
        unknown = [name for name in sorted(names) if name not in known and name not in configs]
        if unknown:
            configs = {**configs, **await asking(Side.TARGET, lambda: self._target.configs(unknown))}
        self._beginnings = known | {
            name: beginnings.read(found.get(COPY_BEGINS, "")) for name, found in configs.items()
        }
        self._without_beginning = names - self._beginnings.keys()

    async def _begun(self, actions: Sequence[Action], source: Mapping[str, SiteTopic]) -> Sequence[Action]:
        """The actions; topics to create come with the offsets at which they begin."""
        leaders = {
            TopicPartition(action.name, partition): leader
            for action in actions
            if isinstance(action, CreateTopic) and self._keeps_beginnings
            for partition, leader in source[action.name].leaders.items()
        }
        if not leaders:
            return actions
        # The start is read before the copy exists, so records that expire later are a gap and not
        # part of the beginning.
        answers = await self._source.log_ends({key: leader for key, leader in leaders.items() if leader.node_id >= 0})
        starts: dict[str, dict[int, int]] = {}
        for key in leaders:
            log = answers.get(key)
            start = log.log_start_offset if isinstance(log, LogEnds) else UNKNOWN
            starts.setdefault(key.topic, {})[key.partition] = start
        return [_beginning(action, starts) if isinstance(action, CreateTopic) else action for action in actions]

    async def _act(self, actions: Sequence[Action], link: LinkView) -> tuple[list[tuple[Action, str]], bool]:
        """Execute the actions; each with the reason of its refusal, empty when it was done. True
        when another round will find a change.
        """
        outcomes: list[tuple[Action, str]] = []
        made: dict[str, int] = {}
        has_changed = False
        # A topic that was created and still is not listed is being deleted by the brokers; creating
        # it again without end would not help.
        async for action, problem in self._outcomes(actions, link):
            if isinstance(action, CreateTopic):
                made[action.name] = 0 if problem else self._made.get(action.name, 0) + 1
            times = made.get(action.name, 1)
            if problem or times > MADE_UNSEEN_MAX:
                outcomes.append((action, f"the target does not {_describe(action)}: {problem or NOT_SHOWN_YET}"))
                continue
            outcomes.append((action, ""))
            if times == 1:
                _log.info("topic changed at the target", action=_describe(action))
                has_changed = has_changed or not isinstance(action, AlterConfigs)
        self._made = made
        return outcomes, has_changed

    def _apply_refusals(
        self,
        outcomes: Sequence[tuple[Action, str]],
        source: Mapping[str, SiteTopic],
        target: Mapping[str, SiteTopic],
        *,
        compared: Collection[str],
    ) -> None:
        new, healed = self.refusals.take(
            outcomes, compared=compared, present=source.keys() & target.keys(), now_ms=self._clock.now_ms()
        )
        for refusal in new:
            _log.warning(refusal.reason, topic=refusal.topic, way_out=refusal.way_out)
        for refusal in healed:
            _log.info("the target accepts a change again", topic=refusal.topic, was=refusal.reason)
        for refusal in self.refusals:
            if refusal.change is not AlterConfigs:
                self._placing.show_refusal(refusal, source[refusal.topic], target.get(refusal.topic))

    async def _outcomes(self, actions: Sequence[Action], link: LinkView) -> AsyncIterator[tuple[Action, str]]:
        """Each action with the reason of its refusal, empty when it was done."""
        for request in requests_of(actions):
            act = partial(self._actor.act, request, link=link.name, link_epoch=link.epoch)
            for outcome in zip(request, await asking(Side.TARGET, act), strict=True):
                yield outcome

    def _report_filters(self, nothing_carried: str) -> None:
        if nothing_carried and not self.nothing_carried:
            _log.warning(nothing_carried)
        self.nothing_carried = nothing_carried

    def _note_problem(self, problem: SiteUnreachable | None) -> None:
        if problem is not None and self._problem is None:
            _log.warning("cannot compare topics", reason=str(problem))
        self._problem = problem

    async def _pause(self, seconds: float) -> None:
        """Pause, or until a look is requested."""
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            return
        await asyncio.sleep(PAUSE_WHEN_POKED_S)
        self._poked.clear()


def _beginning(action: CreateTopic, starts: Mapping[str, Mapping[int, int]]) -> CreateTopic:
    begins = beginnings.written(starts[action.name])
    return replace(action, configs={**action.configs, COPY_BEGINS: begins}) if begins else action


def _views(topics: Mapping[str, SiteTopic], configs: Mapping[str, Mapping[str, str]]) -> dict[str, TopicView]:
    return {
        name: TopicView(topic_id=topic.topic_id, partition_count=len(topic.leaders), configs=configs.get(name))
        for name, topic in topics.items()
    }


def _describe(action: Action) -> str:
    match action:
        case CreateTopic(name=name, topic_id=topic_id, partition_count=count):
            return f"create topic {name} (id {topic_id}, {count} partitions)"
        case GrowTopic(name=name, partition_count=count):
            return f"grow topic {name} to {count} partitions"
        case AlterConfigs(name=name, set=to_set, remove=remove):
            return f"set configs of topic {name}: {dict(to_set)}, without {list(remove)}"
        case DeleteCopy(name=name, topic_id=topic_id):
            return f"delete the copy of topic {name} (id {topic_id})"
