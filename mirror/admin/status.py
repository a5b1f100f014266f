"""The state of a mirror at one moment, as one value for gRPC, health, metrics and the command line.

The mirror builds it once a round, and for each request to MirrorAdmin. It does not contain
partitions: the facts of a flow are values themselves, and the board has them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.liveness import LagGrowth
from mirror.link.core.refusals import Refusal
from mirror.link.link_watch import LinkView
from mirror.sharing.peer_watch import PeersStatus
from wire.control.mirror_pb2 import MirrorTransactions
from wire.protocol.ids import TopicPartition


class MirrorStatus(Struct, frozen=True, kw_only=True):
    """The state of one mirror without its partitions."""

    link: LinkView
    outage: tuple[FlowState, str] | None = None
    """The state and the reason while the whole mirror waits, for instance for a site that does not
    answer; None while it works.
    """
    waiting_for: str = ""
    """A sentence while another daemon carries the link, which is not shared."""
    nothing_carried: str = ""
    """A sentence while the link's filters carry no topic of the source."""
    refusals: tuple[Refusal, ...] = ()
    """Changes of topics that the target's controller refuses."""
    groups_synced_at_ms: int = -1
    """The last complete round over groups (Unix ms), -1 before the first."""
    group_problems: Mapping[str, str] = field(default_factory=dict)
    """The reason why offsets are not carried, by group or broker."""
    groups_stale_since_ms: Mapping[str, int] = field(default_factory=dict)
    """The beginning of each of `group_problems` (Unix ms)."""
    groups_ahead: Mapping[str, str] = field(default_factory=dict)
    """Groups that are further ahead at the target, although they may have been reset at the
    source.
    """
    acls: str = ""
    """How far the ACLs of topics are followed; empty if the link carries none."""
    mirror_maker: str = ""
    """The topics of MirrorMaker 2 that cannot be written, and the reason."""
    transactions: MirrorTransactions | None = None
    """The transactions at the target; None if the link writes none."""
    peers: PeersStatus | None = None
    """The other daemons; None if the link is not shared."""
    stalled_for_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How long partitions have not moved although the source has more."""
    falling_behind: Mapping[TopicPartition, LagGrowth] = field(default_factory=dict)
    """Partitions whose lag grows although they advance."""
    stall_remedies: Mapping[str, int] = field(default_factory=dict)
    """The number of actions on stalled partitions, by kind."""
    retention_risks: Mapping[TopicPartition, float] = field(default_factory=dict)
    """Partitions at risk, with the fraction of their retention by which they are behind."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """The number of restarts of dead workers, by kind."""
    throttle_waited_ms: float = 0.0
    """The time that fetchers waited for the byte rate."""
