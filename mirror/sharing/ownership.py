"""Keeps the slots of a shared link that this daemon owns, and the end of their ownership by its own
clock.

Ownership must be confirmed again and again, so a stopped or disconnected daemon releases its slots
before another one gets them. A daemon of a translate link without transactions checks once more
before it sends (`mirror/translate/translated_append.py`). A process that is paused between that
check and its request does no harm if the target can detect the late request: an exact target
refuses batches that do not continue its log, and a translate target refuses batches that do not
continue the sequence, or that come from a daemon whose claim was followed by another one's
(`mirror/translate/notes/core/claims.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mirror.link.core.slots import SLOTS, slot_of
from mirror.sharing.core.peers import Daemon, DaemonShare
from runtime.clock import Clock
from runtime.logs import state_change_logger
from wire.protocol.ids import TopicPartition

_state_change = state_change_logger()


OnGain = Callable[[], Awaitable[None]]
"""Reads the writes of other daemons, before this daemon owns slots that those may have owned."""


async def read_nothing() -> None:
    """Does nothing: the target itself refuses writes that do not continue its logs."""


class Ownership:
    """`group_sharing.py` or `zookeeper_sharing.py` sets it; the mirror asks `owns`."""

    def __init__(self, *, session_timeout_ms: int, clock: Clock, on_gain: OnGain = read_nothing) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._slots: frozenset[int] = frozenset()
        # Slots that were read before they were acquired and not released since: the reading may
        # take longer than a confirmation lasts.
        self._read: frozenset[int] = frozenset()
        self._owned_until_ms = 0.0
        self._on_gain = on_gain
        # The reason why the negotiation got no answer; empty when it did.
        self.problem = ""
        # The description that this daemon publishes, and those that the other daemons have
        # registered.
        self.own = Daemon()
        self.others: tuple[DaemonShare, ...] = ()

    @property
    def slots(self) -> frozenset[int]:
        """The slots that this daemon owns now: none if its ownership was not confirmed for a
        session's time.
        """
        # By the own clock: after a pause of the process the ownership has ended before anything is
        # sent.
        return self._slots if self._clock.monotonic_ms() < self._owned_until_ms else frozenset()

    @property
    def outage(self) -> str:
        """The reason why this daemon owns nothing although other daemons do not own everything;
        empty while the ownership is confirmed.
        """
        if self._clock.monotonic_ms() < self._owned_until_ms:
            return ""
        return f"this daemon has no share of the link: {self.problem or 'the other daemons have not been asked yet'}"

    def owns(self, key: TopicPartition) -> bool:
        """True if this daemon mirrors the partition now."""
        return slot_of(key) in self.slots

    def release(self, kept: frozenset[int]) -> None:
        """Keep only these slots from now on."""
        self._slots &= kept
        self._read &= kept

    def doubt(self) -> None:
        """The negotiation was interrupted: other daemons may have owned any slot since the last
        confirmation. Owned slots stay owned for the confirmed time.
        """
        self._read = frozenset()

    async def take(self, slots: frozenset[int], *, asked_at_ms: float, **where: object) -> None:
        """Own exactly these slots, by the answer to a request of that time. The writes of other
        daemons are read first.
        """
        gained, lost = slots - self.slots, self.slots - slots
        self._read &= slots
        # Slots that this daemon has owned throughout need no reading.
        if gained - self._read:
            # During the read this daemon owns only slots that it owned before.
            self._slots &= slots
            await self._on_gain()
        self._slots = self._read = slots
        # The time counts from the request, because the answer may have been delayed.
        self.confirm(asked_at_ms)
        if gained or lost:
            share = f"{len(slots)} of {SLOTS}"
            _state_change.info("sharing the link", slots=share, gained=len(gained), lost=len(lost), **where)

    def confirm(self, asked_at_ms: float) -> None:
        """A request of that time has been answered: for a session's time from then on no other
        daemon owns these slots.
        """
        self._owned_until_ms = max(self._owned_until_ms, asked_at_ms + self._session_timeout_ms)
        self.problem = ""
