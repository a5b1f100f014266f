"""One daemon of a translate link that its daemons do not share: it mirrors the link, or waits until
it may (`core/link_lease.py`).

Two daemons that wrote the same partitions would treat each other's batches as a divergence. Links
in transactions need no lease: there the later daemon fences the earlier one (`transactions.py`).
`Ownership` stops the daemon by its own clock when renewals fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mirror.link.ports import Unreachable
from mirror.sharing.ownership import OnGain, Ownership, read_nothing
from mirror.sharing.process_places import is_gone, own_place
from mirror.sharing.shares import Worker
from mirror.translate.core.link_lease import KEY, LinkLease, Notice, Step, decode_notice, encode_notice
from mirror.translate.notes.offset_store import OffsetStore
from runtime.chance import new_uuid
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import ALL_SLOTS

TURNS_A_SESSION = 4
RELEASE_TIMEOUT_S = 3.0

_log = get_logger("mirror.sharing")
_state_change = state_change_logger()


class LinkHolder:
    """The holder of one link's lease. Call `turn` once before the mirror starts, then `run` as a
    worker of the mirror, and `close` at the end.
    """

    def __init__(
        self,
        store: OffsetStore,
        *,
        daemon: str,
        session_timeout_ms: int,
        clock: Clock,
        on_gain: OnGain = read_nothing,
    ) -> None:
        self._store = store
        self._daemon = daemon
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._process = new_uuid().hex
        self._place = own_place()
        self._lease = LinkLease(self._process, session_timeout_ms=session_timeout_ms)
        self._number = 0
        self._next_offset = 0
        # The time at which this daemon's lease ends by its own clock.
        self._held_until_ms = 0.0
        self._taking: asyncio.Task[None] | None = None
        self._problem = ""
        self._has_taken = False
        self.ownership = Ownership(session_timeout_ms=session_timeout_ms, clock=clock, on_gain=on_gain)
        # A sentence while another daemon carries the link; empty otherwise.
        self.waiting_for = ""

    @property
    def outage(self) -> str:
        """The reason why this daemon neither carries the link nor waits for another one; empty
        while it does one of them.
        """
        if self.waiting_for or self.ownership.slots:
            return ""
        return f"this daemon does not carry the link yet: {self._problem or 'the stored state of the link must be read first'}"

    def carries(self, key: TopicPartition) -> bool:
        """True if this daemon has the partition: also while renewals fail, since no other daemon is
        known to have the link.

        Only `ownership` decides whether the daemon may write it now: fetched batches are kept,
        because no other copy of them may exist.
        """
        return self._has_taken or self.ownership.owns(key)

    async def run(self) -> None:
        """Take the link when it is free, and renew, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._session_timeout_ms / TURNS_A_SESSION / 1000)
                try:
                    await self.turn()
                except Unreachable as error:
                    if str(error) != self._problem:
                        _log.warning("cannot renew the link's lease; retrying", reason=str(error))
                    self._problem = str(error)
        finally:
            self._stop_taking()

    async def turn(self) -> None:
        """Read the others' notices; renew this daemon's own, or take the link when no other daemon
        has it. Unreachable.
        """
        # The lease counts from before the requests: however long they take, the others may replace
        # this daemon one session after its notice.
        asked_at_ms = self._clock.monotonic_ms()
        if self._problem:
            # After a failure the topic may be missing at the target.
            await self._store.create()
        await self._read()
        if not self._lease.is_ours:
            self._let_go()
        is_held = self._lease.is_ours and asked_at_ms < self._held_until_ms
        if not is_held and not self._lease.may_take(now_ms=self._clock.monotonic_ms(), is_gone=is_gone):
            self._wait()
            return
        # Another daemon's notice may come between the read and this write, so the topic is read
        # again afterwards, and its order decides.
        await self._write(Step.RENEW if is_held else Step.TAKE)
        await self._read()
        if not self._lease.is_ours:
            self._wait()
            return
        self._held_until_ms = asked_at_ms + self._session_timeout_ms
        self._problem = self.waiting_for = ""
        self._take(asked_at_ms)

    async def close(self) -> None:
        """Release the link, so that another daemon need not wait for the session timeout."""
        self._stop_taking()
        # After the end of the lease another daemon may carry the link.
        if not self._lease.is_ours or self._clock.monotonic_ms() >= self._held_until_ms:
            return
        self.ownership.release(frozenset())
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await self._write(Step.RELEASE)
        except (TimeoutError, Unreachable) as error:
            _log.info("the link was not released; another daemon must wait for the session timeout", reason=str(error))

    def _take(self, asked_at_ms: float) -> None:
        """Own all partitions after the others' writes were read, which may take longer than a
        session.
        """
        self.ownership.confirm(asked_at_ms)
        if self._taking is not None and self._taking.done():
            taking, self._taking = self._taking, None
            taking.result()
        if self._taking is None and not self._has_taken:
            self._taking = asyncio.get_running_loop().create_task(self._take_all(asked_at_ms))

    async def _take_all(self, asked_at_ms: float) -> None:
        await self.ownership.take(ALL_SLOTS, asked_at_ms=asked_at_ms, daemon=self._daemon)
        self._has_taken = True

    def _wait(self) -> None:
        """Wait, because another daemon carries the link or may carry it."""
        self._let_go()
        holder = self._lease.holder
        daemon = "another daemon" if holder is None or self._lease.is_ours else f"daemon {holder.daemon}"
        waiting_for = (
            f"{daemon} carries the link; this daemon takes over when that daemon releases the lease or has not renewed it for "
            f"{self._session_timeout_ms} ms. To carry one link with several daemons set antipode.sharing.enabled=true for all"
        )
        if waiting_for != self.waiting_for:
            _state_change.warning(waiting_for)
        self.waiting_for = waiting_for

    def _let_go(self) -> None:
        self._stop_taking()
        self.ownership.release(frozenset())
        self._has_taken = False

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    async def _read(self) -> None:
        values, self._next_offset = await self._store.values_of(KEY, first_offset=self._next_offset)
        now_ms = self._clock.monotonic_ms()
        for value in values:
            notice = decode_notice(value)
            if notice is not None:
                self._lease.read(notice, now_ms=now_ms)

    async def _write(self, step: Step) -> None:
        self._number += 1
        after = self._lease.last_id if step is Step.TAKE else ""
        notice = Notice(
            process=self._process, number=self._number, step=step, daemon=self._daemon, place=self._place, after=after
        )
        await self._store.save([[(KEY, encode_notice(notice))]], now_ms=self._clock.now_ms())


class HeldLink:
    """The `Share` of a daemon that carries its link alone while it holds the link's lease."""

    ownership = None

    def __init__(self, daemon: str, holder: LinkHolder) -> None:
        self.daemon = daemon
        self._holder = holder
        self.workers: Mapping[str, Worker] = {"lease": holder.run}

    @property
    def slots(self) -> frozenset[int]:
        """All slots while the lease is held, otherwise none."""
        return self._holder.ownership.slots

    @property
    def outage(self) -> str:
        """The reason why this daemon neither carries the link nor waits for another one."""
        return self._holder.outage

    @property
    def waiting_for(self) -> str:
        """A sentence while another daemon carries the link; empty otherwise."""
        return self._holder.waiting_for

    def owns(self, key: TopicPartition) -> bool:
        """True if this daemon mirrors the partition."""
        return self._holder.carries(key)
