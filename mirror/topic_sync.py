"""Keeps the target's topics like the source's and the board like both: discovery, creation, growth, configs, leaders.

Each round looks at both sites' own metadata, plans (`core/plan.py`), has the target's controller act in the link's name, and
puts every partition that both sites have on the board with its leaders. Configs are compared less often than topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from mirror.board import NOBODY, FlowBoard
from mirror.core.flow_events import LinkRole, LinkTurned, Side, Start, TopicAgrees, TopicConflict, TopicReplaced
from mirror.core.flow_state import FlowState
from mirror.core.partitions import PartitionKey
from mirror.core.plan import Action, AlterConfigs, CreateTopic, Finding, GrowTopic, Plan, TopicView, Trouble, plan
from mirror.link_watch import LinkStanding
from mirror.ports import SitePort, SiteTopic, TopicActor, Unreachable
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.links import carries_topic

PAUSE_WHEN_POKED_S = 0.05
"""Rest before a round that somebody asked for, so that many partitions that lost their leader make one round."""

Result = TypeVar("Result")

_log = get_logger("mirror.topics")


class SiteUnreachable(Exception):
    """One of the sites does not answer."""

    def __init__(self, side: Side, reason: str) -> None:
        super().__init__(f"{side.value}: {reason}")
        self.side = side


class TopicSync:
    """One task; `poke` has it look at once."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: SitePort,
        target: SitePort,
        actor: TopicActor,
        link: Callable[[], LinkStanding],
        clock: Clock,
        interval_ms: int,
        config_interval_ms: int,
        excluded_configs: Collection[str],
        on_topology: Callable[[], None],
    ) -> None:
        self._board = board
        self._source = source
        self._target = target
        self._actor = actor
        self._link = link
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._config_interval_ms = config_interval_ms
        self._excluded_configs = excluded_configs
        self._on_topology = on_topology
        self._poked = asyncio.Event()
        self._configs_at_ms = float("-inf")
        self._problem: SiteUnreachable | None = None
        self._troubles: dict[str, Trouble] = {}
        self.synced_at_ms = -1

    @property
    def problem(self) -> SiteUnreachable | None:
        """Why the last round could not compare the sites."""
        return self._problem

    @property
    def troubles(self) -> Mapping[str, Trouble]:
        """Topics that cannot be mirrored, and why."""
        return self._troubles

    def poke(self) -> None:
        """Look now."""
        self._poked.set()

    async def run(self) -> None:
        """Look each interval until cancelled."""
        while True:
            try:
                again = await self.round()
                self._tell(None)
            except SiteUnreachable as error:
                again = False
                self._tell(error)
            if not again:
                await self._pause()

    async def round(self) -> bool:
        """Look once; True when something was changed at the target and another look will find it."""
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            return False
        source_topics, target_topics = await asyncio.gather(
            _topics_of(Side.SOURCE, self._source), _topics_of(Side.TARGET, self._target)
        )
        source = {name: topic for name, topic in source_topics.items() if carries_topic(link.record, name)}
        target = {name: topic for name, topic in target_topics.items() if carries_topic(link.record, name)}
        configs = await self._configs(source, target)
        wanted = plan(_views(source, configs[0]), _views(target, configs[1]), excluded_configs=self._excluded_configs)
        has_changed = await self._act(wanted.actions, link)
        self._update_board(source, target, wanted)
        self.synced_at_ms = self._clock.now_ms()
        return has_changed

    async def _configs(
        self, source: Mapping[str, SiteTopic], target: Mapping[str, SiteTopic]
    ) -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, Mapping[str, str]]]:
        """Configs by topic at both sites: of all topics when it is time, else only of those to be created."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._configs_at_ms >= self._config_interval_ms:
            both = sorted(source.keys() & target.keys())
            ours = await _asking(Side.SOURCE, self._source.configs(sorted(source))) if source else {}
            theirs = await _asking(Side.TARGET, self._target.configs(both)) if both else {}
            self._configs_at_ms = now_ms
            return ours, theirs
        missing = sorted(source.keys() - target.keys())
        return (await _asking(Side.SOURCE, self._source.configs(missing)) if missing else {}), {}

    async def _act(self, actions: Sequence[Action], link: LinkStanding) -> bool:
        has_changed = False
        for action in actions:
            acting = self._actor.act(action, link=link.name, link_epoch=link.epoch)
            problem = await _asking(Side.TARGET, acting)
            if problem:
                _log.warning("the target's controller refuses", action=_describe(action), reason=problem)
            else:
                _log.info("changed at the target", action=_describe(action))
                has_changed = has_changed or not isinstance(action, AlterConfigs)
        return has_changed

    def _update_board(self, source: Mapping[str, SiteTopic], target: Mapping[str, SiteTopic], wanted: Plan) -> None:
        has_moved = False
        for name in wanted.agreed:
            for partition in sorted(source[name].leaders.keys() & target[name].leaders.keys()):
                has_moved |= self._place(PartitionKey(name, partition), source[name], target[name])
        for name, trouble in wanted.troubles.items():
            if trouble.finding is not Finding.GONE:
                for partition in source[name].leaders:
                    self._show_trouble(PartitionKey(name, partition), source[name], trouble)
        self._tell_troubles(wanted.troubles)
        if has_moved:
            self._on_topology()

    def _place(self, key: PartitionKey, source: SiteTopic, target: SiteTopic) -> bool:
        """The partition on the board with its leaders; True when anything about it is new."""
        is_new = key not in self._board
        row = self._board.add(key, source.topic_id)
        before = (row.source, row.target)
        row.topic_id, row.source, row.target = (
            source.topic_id,
            source.leaders[key.partition],
            target.leaders[key.partition],
        )
        if is_new:
            link = self._link()
            self._board.submit(key, LinkTurned(role=link.role, reason=link.reason))
            self._board.submit(key, Start())
        elif row.facts.state in (FlowState.RESET, FlowState.FAULTED):
            # Also when its copy was deleted meanwhile and has been made anew: then there was a round without a trouble.
            self._board.submit(key, TopicAgrees())
        return is_new or before != (row.source, row.target)

    def _show_trouble(self, key: PartitionKey, source: SiteTopic, trouble: Trouble) -> None:
        """A topic that cannot be mirrored is on the board too: nothing is left out in silence."""
        row = self._board.add(key, source.topic_id)
        row.source = NOBODY
        command = TopicReplaced if trouble.finding is Finding.REPLACED else TopicConflict
        self._board.submit(key, command(reason=trouble.reason))

    def _tell_troubles(self, troubles: Mapping[str, Trouble]) -> None:
        for name, trouble in troubles.items():
            if self._troubles.get(name) != trouble:
                _log.warning(trouble.reason, topic=name, finding=trouble.finding.value)
        self._troubles = dict(troubles)

    def _tell(self, problem: SiteUnreachable | None) -> None:
        if problem is not None and self._problem is None:
            _log.warning("topics cannot be compared", reason=str(problem))
        self._problem = problem

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._poked.wait()
        except TimeoutError:
            return
        await asyncio.sleep(PAUSE_WHEN_POKED_S)
        self._poked.clear()


async def _topics_of(side: Side, site: SitePort) -> Mapping[str, SiteTopic]:
    """The call is made inside, since a round may be ended before its two halves have begun."""
    return await _asking(side, site.topics())


async def _asking(side: Side, call: Awaitable[Result]) -> Result:
    try:
        return await call
    except Unreachable as error:
        raise SiteUnreachable(side, str(error)) from error


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
            return f"configs of topic {name}: set {dict(to_set)}, remove {list(remove)}"
