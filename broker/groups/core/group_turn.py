"""A decision in progress: the group as it would become, and the effects that would follow.

The membership rules (`core/group_membership.py`, `core/group_rebalance.py`) move a `Turn` from
value to value; the machine's state is not touched. `decision` turns the difference into records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct
from msgspec.structs import replace

from broker.groups.core.consumer_protocol.server_assignors import ASSIGNORS
from broker.groups.core.group_messages import (
    Answer,
    CancelTimer,
    Decision,
    Effect,
    GroupChanged,
    GroupRecord,
    GroupStored,
    JoinReply,
    Reply,
    StartTimer,
    SyncReply,
    TimerKey,
    TimerKind,
)
from broker.groups.core.group_states import Group, Member
from broker.settings.core.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, Bounds, GroupBounds

NEWCOMER_TIMEOUT_MS: Final = 300_000
"""A new member that waits for its first generation is kept this long (it cannot send heartbeats
yet).
"""


class GroupLimits(Struct, frozen=True, kw_only=True):
    """The broker's bounds for groups."""

    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    size_max: int = (1 << 31) - 1
    initial_rebalance_delay_ms: int = 3000
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    consumer_session_timeout_ms: int = 45_000
    consumer_session_timeout_ms_min: int = 45_000
    consumer_session_timeout_ms_max: int = 60_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_heartbeat_interval_ms_min: int = 5000
    consumer_heartbeat_interval_ms_max: int = 15_000
    consumer_assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """The assignors that members may choose; the first one serves groups whose members choose
    none.
    """
    consumer_size_max: int = (1 << 31) - 1
    may_upgrade: bool = True
    """A member of the newer protocol may turn a classic group into a KIP-848 group."""
    may_downgrade: bool = True
    """True if the group may continue as a classic group when the last KIP-848 member leaves."""

    @property
    def group_bounds(self) -> GroupBounds:
        """The bounds for configs of single groups."""
        return {
            SESSION_TIMEOUT: Bounds(
                self.consumer_session_timeout_ms,
                self.consumer_session_timeout_ms_min,
                self.consumer_session_timeout_ms_max,
            ),
            HEARTBEAT_INTERVAL: Bounds(
                self.consumer_heartbeat_interval_ms,
                self.consumer_heartbeat_interval_ms_min,
                self.consumer_heartbeat_interval_ms_max,
            ),
        }


class Turn:
    """One group during a decision; each change returns another turn."""

    __slots__ = ("_before", "_effects", "group", "limits", "must_store", "now_ms", "reason", "token")

    def __init__(self, group: Group, *, now_ms: int, token: int, limits: GroupLimits) -> None:
        self._before = group
        self._effects: list[Effect] = []
        self.group = group
        self.now_ms = now_ms
        self.token = token
        self.limits = limits
        self.must_store = False
        self.reason = ""

    def answer(self, token: int | None, reply: Reply) -> None:
        """Answer a request: this turn's, or one that was waiting."""
        if token is not None:
            self._effects.append(Answer(token=token, reply=reply))

    def start_timer(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        """Start or restart a timer of the group."""
        self._effects.append(StartTimer(key=TimerKey(kind, self.group.group_id, member_id), delay_ms=delay_ms))

    def cancel_timer(self, kind: TimerKind, member_id: str = "") -> None:
        """Stop a timer of the group."""
        self._effects.append(CancelTimer(key=TimerKey(kind, self.group.group_id, member_id)))

    def restart_session(self, member: Member) -> None:
        """Restart the session of a member that sent a request; a new member that waits for its
        first generation gets more time.
        """
        is_newcomer = member.is_new and member.join_token is not None
        delay_ms = max(NEWCOMER_TIMEOUT_MS, member.session_timeout_ms) if is_newcomer else member.session_timeout_ms
        self.start_timer(TimerKind.SESSION, delay_ms, member.member_id)

    def refuse_parked(self, member: Member, error: ErrorCode) -> None:
        """Answer the member's waiting requests with an error."""
        self.answer(member.join_token, JoinReply(error=error))
        self.answer(member.sync_token, SyncReply(error=error))

    def put(self, member: Member) -> None:
        """Add the member to the group, or replace it."""
        self.group = self.group.with_member(member)

    def drop(self, member: Member, error: ErrorCode) -> None:
        """Remove the member, and answer its waiting requests with the error."""
        self.refuse_parked(member, error)
        self.cancel_timer(TimerKind.SESSION, member.member_id)
        self.group = self.group.without_member(member.member_id)

    def decision(self, further: Sequence[GroupRecord] = ()) -> Decision:
        """The decision of this turn, with `further` records added."""
        records: tuple[GroupRecord, ...] = tuple(further)
        if self.must_store:
            records = (GroupStored(group=self.group), *records)
        elif self.group is not self._before and self.group != self._before:
            records = (GroupChanged(group=self.group), *records)
        return Decision(records=records, effects=tuple(self._effects), reason=self.reason)


def unparked(member: Member) -> Member:
    """The member without waiting requests."""
    return replace(member, join_token=None, sync_token=None)
