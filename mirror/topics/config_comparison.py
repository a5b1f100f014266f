"""Decides when the configs of all topics are compared, reads them at both sites, and keeps the
digest of the source's configs that are at the target, which a planned move compares with the fenced
source's (`wire/rules/access_digests.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from mirror.flow.core.flow_effects import Side
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.topic_plan import Action, AlterConfigs
from mirror.link.ports import SitePort, SourcePort
from mirror.topics.asking import asking
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.rules.access_digests import TOPIC_CONFIGS, topic_configs_digest
from wire.rules.sync_reports import CarriedAccess

TOPICS_LOGGED: Final = 10
"""Topics of each site that one line of the log names."""

_log = get_logger("mirror.topics")


class TopicConfigs(NamedTuple):
    """The configs of topics at both sites. `began_ms`: the monotonic time before they were read;
    `is_whole`: of all topics, else only of those that the target lacks.
    """

    source: Mapping[str, Mapping[str, str]]
    target: Mapping[str, Mapping[str, str]]
    began_ms: float
    is_whole: bool


class ConfigComparison:
    """The comparison of one link's topics."""

    def __init__(self, source: SourcePort, target: SitePort, *, clock: Clock, interval_ms: int) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._interval_ms = interval_ms
        self._compared_ms = float("-inf")
        self._carried_ms: float | None = None
        self._digest = ""
        self._was_draining = False
        # The topics whose configs a site hides from the mirror, or that it has deleted meanwhile.
        self._hidden: tuple[list[str], list[str]] = ([], [])

    @property
    def carried(self) -> CarriedAccess:
        """The digest of the source's configs as the target last got all of them, and its age."""
        ago_ms = None if self._carried_ms is None else round(self._clock.monotonic_ms() - self._carried_ms)
        return CarriedAccess({TOPIC_CONFIGS: self._digest}, ago_ms)

    def forget(self) -> None:
        """The link has changed direction."""
        self._digest, self._carried_ms, self._was_draining = "", None, False

    async def read(self, source: Collection[str], target: Collection[str], role: LinkRole) -> TopicConfigs:
        """Read the configs of all topics when it is time, else only of those to be created. Raises
        SiteUnreachable.
        """
        began_ms = self._clock.monotonic_ms()
        is_draining = role is LinkRole.DRAINING
        # A move without a late change ends within the first round under the fence: only a later
        # one reads all configs, so that they do not delay the last records.
        is_late = is_draining and self._was_draining
        self._was_draining = is_draining
        if not is_late and began_ms - self._compared_ms < self._interval_ms:
            missing = sorted(set(source) - set(target))
            ours = await asking(Side.SOURCE, lambda: self._source.configs(missing)) if missing else {}
            return TopicConfigs(ours, {}, began_ms, is_whole=False)
        both = sorted(set(source) & set(target))
        ours = await asking(Side.SOURCE, lambda: self._source.configs(sorted(source))) if source else {}
        theirs = await asking(Side.TARGET, lambda: self._target.configs(both)) if both else {}
        self._compared_ms = began_ms
        self._note_hidden(sorted(set(source) - ours.keys()), sorted(set(both) - theirs.keys()))
        return TopicConfigs(ours, theirs, began_ms, is_whole=True)

    def _note_hidden(self, source: list[str], target: list[str]) -> None:
        before, self._hidden = self._hidden, (source, target)
        if self._hidden != before and (source or target):
            _log.warning(
                "configs of some topics are not compared: a site does not show them to the mirror",
                source=source[:TOPICS_LOGGED],
                target=target[:TOPICS_LOGGED],
            )

    def note_actions(self, actions: Iterable[Action]) -> None:
        """The target gets these changes: until it has them, it has no configs in whole."""
        if any(isinstance(action, AlterConfigs) for action in actions):
            self._digest = ""

    def note_carried(self, configs: TopicConfigs) -> None:
        """The target has these configs, or has refused some of them, which the status names."""
        if configs.is_whole:
            self._digest, self._carried_ms = topic_configs_digest(configs.source), configs.began_ms
