"""Creates the parts of a running mirror that need many of its settings: the tasks for topics and
groups, resets of copies, and the watch over stalled partitions. `assembly.py` connects them.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from mirror.admin.reinstatements import Reinstatements
from mirror.admin.resets import Resets
from mirror.ends import Ends
from mirror.flow.board import FlowBoard
from mirror.flow.stall_watch import StallWatch
from mirror.groups.group_report import AccessState, joined
from mirror.groups.group_sync import GroupSync
from mirror.groups.metrics import CheckpointMetrics
from mirror.link.link_watch import LinkView
from mirror.settings.config import MirrorConfig
from mirror.sharing.shares import Share
from mirror.topics.topic_sync import TopicSync
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition


def make_group_sync(
    config: MirrorConfig,
    ends: Ends,
    share: Share,
    board: FlowBoard,
    *,
    link: Callable[[], LinkView],
    registry: CollectorRegistry,
    clock: Clock,
    topics: Callable[[], TopicSync],
) -> GroupSync:
    """The task that carries groups' offsets. It also reports the access rules and configs that are
    at the target.
    """

    def access() -> AccessState:
        if not ends.is_exact:
            return ends.status().access
        return joined([ends.status().access, AccessState(carried=topics().carried_configs)])

    metrics = None
    # Translate links measure it where their checkpoints are written.
    if ends.is_exact:
        metrics = CheckpointMetrics(
            registry,
            source=link().source_site,
            target=link().site,
            clock=clock,
            names_formats=config.figure_names,
        )
    return GroupSync(
        board,
        source=ends.source_groups,
        target=ends.target_groups,
        link=link,
        clock=clock,
        interval_ms=config.group_sync_interval_ms,
        tail=ends.offsets_tail,
        metrics=metrics,
        daemon=share.daemon,
        slots=lambda: share.slots,
        access=access,
    )


def make_topic_sync(
    config: MirrorConfig,
    ends: Ends,
    board: FlowBoard,
    *,
    link: Callable[[], LinkView],
    clock: Clock,
    on_topology: Callable[[], None],
    on_renewed: Callable[[str], None],
) -> TopicSync:
    """The task that keeps the target's topics like the source's."""
    return TopicSync(
        board,
        source=ends.source,
        target=ends.target,
        actor=ends.actor,
        link=link,
        clock=clock,
        interval_ms=config.topics_refresh_interval_ms,
        config_interval_ms=config.config_sync_interval_ms,
        excluded_configs=config.config_properties_exclude,
        keeps_beginnings=ends.is_exact,
        on_topology=on_topology,
        on_renewed=on_renewed,
        name_at_target=ends.name_at_target,
    )


def make_resets(
    ends: Ends, board: FlowBoard, *, link: Callable[[], LinkView], on_put_away: Callable[[str], None]
) -> Resets:
    """The part that resets copies at an operator's request."""
    return Resets(
        board,
        source=ends.source,
        target=ends.target,
        actor=ends.actor,
        link=link,
        on_put_away=on_put_away,
        quarantine=ends.quarantine,
        verifier=ends.verifier,
    )


def make_reinstatements(ends: Ends, board: FlowBoard, *, link: Callable[[], LinkView]) -> Reinstatements:
    """The part that makes the copies of a returning site prefixes of the source again."""
    return Reinstatements(
        board,
        source=ends.source,
        target=ends.target,
        target_groups=ends.target_groups,
        link=link,
        quarantine=ends.quarantine,
        verifier=ends.verifier,
    )


def make_stall_watch(
    config: MirrorConfig,
    ends: Ends,
    board: FlowBoard,
    *,
    waited_ms: Callable[[], float],
    replace_workers: Callable[[TopicPartition, str], None],
    clock: Clock,
) -> StallWatch:
    """The watch that replaces workers of stalled partitions."""
    return StallWatch(
        board,
        source=ends.source,
        waited_ms=waited_ms,
        replace_workers=replace_workers,
        clock=clock,
        # A source without new records answers only at the end of each long poll.
        stall_ms=max(config.stall_timeout_ms, 2 * config.fetch_wait_max_ms),
    )
