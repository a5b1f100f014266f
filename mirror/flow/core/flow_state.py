"""The facts of a partition's flow: its state, the legal transitions, its positions. Facts only;
`core/flow.py` has the decisions.

States (what an operator sees)
    PREPARING           the flow finds positions
    MIRRORING           batches flow
    PAUSED              by an operator
    GAP                 the source expired records before they were mirrored
    RESET               the topic was deleted and created again
    REFUSED             the target's controller refuses to create the topic
    FAULTED             histories differ, or bytes are corrupt: needs a person
    SOURCE_UNAVAILABLE  the source cannot be reached, or hides the topic
    PROMOTING           the source is fenced, and its last records are drained (settled: MIRRORING)
    PROMOTED            this site is active, the mirror writes nothing
    REVERSING           this site was active and becomes the target again: histories are compared

Steps (what the flow waits for)
    IDLE                nothing: paused, promoted, reset
    SETTLING            older batches to be answered or dropped
    FINDING_TARGET      the target's log end
    CHECKING_SOURCE     the source's comparison of epochs
    STREAMING           the next batches
    WAITING             the time of the next try
    REINSTATING         the copy's own end to be quarantined
"""

from __future__ import annotations

import enum

from msgspec import Struct

from mirror.flow.core.lag import Progress
from mirror.link.core.link_roles import LinkRole


class FlowState(enum.Enum):
    """The state that an operator sees."""

    PREPARING = "PREPARING"
    MIRRORING = "MIRRORING"
    PAUSED = "PAUSED"
    GAP = "GAP"
    RESET = "RESET"
    REFUSED = "REFUSED"
    FAULTED = "FAULTED"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    PROMOTING = "PROMOTING"
    PROMOTED = "PROMOTED"
    REVERSING = "REVERSING"


class Step(enum.Enum):
    """The event that the flow waits for."""

    IDLE = "idle"
    SETTLING = "settling"
    FINDING_TARGET = "finding target"
    CHECKING_SOURCE = "checking source"
    STREAMING = "streaming"
    WAITING = "waiting"
    REINSTATING = "reinstating"


_S = FlowState
_RUNNING = frozenset({_S.MIRRORING, _S.PROMOTING})
_HALTED = frozenset({_S.GAP, _S.RESET, _S.FAULTED})
_ALWAYS = frozenset({_S.PAUSED, _S.PROMOTED, _S.RESET, _S.FAULTED, _S.REFUSED})

TRANSITIONS: dict[FlowState, frozenset[FlowState]] = {
    _S.PREPARING: _RUNNING | _HALTED | _ALWAYS | {_S.SOURCE_UNAVAILABLE},
    _S.MIRRORING: _HALTED | _ALWAYS | {_S.PREPARING, _S.PROMOTING, _S.SOURCE_UNAVAILABLE},
    _S.PROMOTING: _HALTED | _ALWAYS | {_S.PREPARING, _S.MIRRORING, _S.SOURCE_UNAVAILABLE},
    _S.PAUSED: _ALWAYS | {_S.PREPARING},
    _S.GAP: _RUNNING | _ALWAYS | {_S.PREPARING, _S.SOURCE_UNAVAILABLE},
    _S.RESET: _ALWAYS | {_S.PREPARING, _S.SOURCE_UNAVAILABLE},
    _S.REFUSED: _ALWAYS | {_S.PREPARING, _S.SOURCE_UNAVAILABLE},
    _S.FAULTED: _RUNNING | _ALWAYS | {_S.GAP, _S.PREPARING, _S.SOURCE_UNAVAILABLE},
    _S.SOURCE_UNAVAILABLE: _RUNNING | _HALTED | _ALWAYS | {_S.PREPARING},
    # The flow of a promoted site has ended; only a reversal of the link starts it again.
    _S.PROMOTED: frozenset({_S.REVERSING}),
    _S.REVERSING: _RUNNING | _HALTED | _ALWAYS | {_S.SOURCE_UNAVAILABLE},
}
"""The legal transitions of each state (a state may always be repeated with another reason)."""


class FlowFacts(Struct, frozen=True):
    """All facts of a flow; `Flow.apply` replaces the whole value."""

    state: FlowState = FlowState.PREPARING
    reason: str = "not started"
    step: Step = Step.IDLE
    role: LinkRole = LinkRole.MIRRORING
    generation: int = 0
    # Next offset to fetch: the end of the queued batches, where the target's log must end before
    # it.
    chain_offset: int = 0
    # Leader epoch of the last batch queued (or found at the target), -1 none.
    chain_epoch: int = -1
    # True while the chain of this generation is unbroken: the source may be lost and return without
    # a new query of the target.
    is_chained: bool = False
    source_log_start_offset: int = 0
    target_log_start_offset: int = 0
    has_streamed: bool = False
    # How often the target's log ended below its acknowledged end; each time it has lost records or
    # is another copy.
    target_losses: int = 0
    # The source's offset at which the copy begins, -1 when it is unknown.
    begins_offset: int = -1
    attempts: int = 0
    skipped_records: int = 0
    # How long the source keeps tombstones of this topic, -1 when it does not compact it.
    tombstones_kept_ms: int = -1
    # Nothing has been fetched yet since the mirror started (or the copy was made anew).
    is_resuming: bool = False
    # When this mirror began the copy from nothing, -1 when it found one.
    copy_began_ms: int = -1
    # Tombstones may be missing at the target: keys that were deleted while the mirror did not run
    # may still exist there.
    may_lack_tombstones: bool = False
    # The target's log may restart at this offset because the source has nothing older; 0 if there
    # is none.
    restart_offset: int = 0
    # The next fetch begins one offset before the chain's end: the target compares its last batch
    # with the source's.
    rereads_last_batch: bool = False
    # The target has not compared its last batch with the source's in this chain: two histories of
    # one leader epoch may still differ.
    awaits_comparison: bool = False
    progress: Progress = Progress()

    @property
    def fetch_offset(self) -> int:
        """The offset at which the next fetch begins."""
        # `rereads_last` counts as 1: the offset before is in the last batch, and brokers return
        # whole batches.
        return self.chain_offset - self.rereads_last_batch

    @property
    def waits_for_topic(self) -> bool:
        """True if only a report about the topic at the two sites lets the flow continue."""
        is_idle = self.step is Step.IDLE
        is_held = self.state in (FlowState.RESET, FlowState.REFUSED)
        return is_held or (is_idle and self.state in (FlowState.FAULTED, FlowState.SOURCE_UNAVAILABLE))
