"""The Kafka users that act for HTTP principals: for each rule of impersonation that is in use, a
producer and an admin client with the rule's own credentials.

How many there are is bounded. A client that no request uses is closed after a while, or sooner if
another rule needs its place: a request of that rule waits until the place is free. New requests do
not use a client whose rule has changed. The unacknowledged records of all users together are
bounded, and so are those of each user: one user whose records are not acknowledged does not use up
the space of others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from bridge.access.logins import HttpPrincipal
from bridge.access.security import RULES_FILE_KEY, BridgeSecurity, read_rules_file
from bridge.access.watched_file import WatchedFile
from bridge.admin import Admin
from bridge.config import BridgeSettings
from bridge.core.impersonation import ImpersonationRule, rule_of
from bridge.core.refusals import forbidden, too_many
from bridge.metrics import BridgeMetrics
from bridge.producing import RecordProducer, Room
from runtime.logs import get_logger
from runtime.supervision import Supervisor, in_background

SWEEP_PAUSE_S: Final = 1.0
WAITING_MAX: Final = 64
"""Requests that wait for a place at one time; more are refused at once."""
SHARES: Final = 4
"""If there are several users, one has at most this share of the room for records."""

log = get_logger(__name__)


class KafkaUser:
    """The producer and the admin client of one Kafka user. They connect at their first use."""

    def __init__(self, settings: BridgeSettings, metrics: BridgeMetrics, room: Room) -> None:
        self.admin = Admin(settings)
        self.consumer_properties: Mapping[str, str] = settings.consumer_properties
        self.producer = RecordProducer(
            {
                **settings.producer_properties,
                "bootstrap.servers": settings.bootstrap,
                "client.id": settings.client_id,
            },
            metrics,
            room=room,
            block_ms_max=settings.block_ms_max,
        )
        self.requests = 0
        self.last_used_s = time.monotonic()

    async def stop(self, *, within_ms: int) -> int:
        """Wait for acknowledgements, and close; return the number of records without one."""
        left = await self.producer.stop(within_ms=within_ms)
        self.admin.stop()
        return left


class KafkaUsers:
    """The Kafka users of one bridge. `start` before use, `stop` at the end."""

    def __init__(self, settings: BridgeSettings, security: BridgeSecurity, metrics: BridgeMetrics) -> None:
        """Raises ConfigurationError when the rules cannot be used."""
        self._settings = settings
        self._metrics = metrics
        self._rules: WatchedFile[tuple[ImpersonationRule, ...]] | None = None
        if security.rules_file is not None:
            self._rules = WatchedFile(RULES_FILE_KEY, security.rules_file, partial(read_rules_file, settings))
        self.room = Room(settings.buffer_bytes)
        self._users: dict[tuple[tuple[str, str], ...], KafkaUser] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._waiting_count = 0
        self._place_may_be_free = asyncio.Event()
        self._loops = Supervisor()
        self.own = KafkaUser(settings, metrics, self._share())
        metrics.add_gauge("kafka_users", lambda: 1 + len(self._users))

    def start(self) -> None:
        """Start with the bridge's own user."""
        self.own.producer.start()
        self._loops.start("unused Kafka users of the bridge", self._sweep)

    async def stop(self, *, within_ms: int) -> int:
        """Stop all; return the number of records without an acknowledgement."""
        await self._loops.stop()
        stopping = [user.stop(within_ms=within_ms) for user in (self.own, *self._users.values())]
        left = await asyncio.gather(*stopping)
        await asyncio.gather(*self._closing, return_exceptions=True)
        return sum(left)

    @asynccontextmanager
    async def acting_for(self, principal: HttpPrincipal) -> AsyncIterator[KafkaUser]:
        """The user for the length of a request. Refused: 403 without a rule, 429 when all places
        are in use for `antipode.admin.timeout.ms`.
        """
        user = self._user_of(principal) or await self._waited_for(principal)
        user.requests += 1
        try:
            yield user
        finally:
            user.requests -= 1
            user.last_used_s = time.monotonic()
            self._place_may_be_free.set()

    async def _waited_for(self, principal: HttpPrincipal) -> KafkaUser:
        """The user once another one has made room. Refused: 429 when none does in time."""
        if self._waiting_count >= WAITING_MAX:
            raise too_many("Too many requests wait for a Kafka user; try again.")
        self._waiting_count += 1
        try:
            async with asyncio.timeout(self._settings.admin_timeout_ms / 1000):
                while True:
                    self._close_least_used()
                    self._place_may_be_free.clear()
                    await self._place_may_be_free.wait()
                    # read the rule again: the rules or the clients of other users may have changed
                    # during the wait
                    user = self._user_of(principal)
                    if user is not None:
                        return user
        except TimeoutError:
            raise too_many("The bridge acts for as many Kafka users as it may; try again.") from None
        finally:
            self._waiting_count -= 1

    def _user_of(self, principal: HttpPrincipal) -> KafkaUser | None:
        """None when all places are in use."""
        if self._rules is None:
            return self.own
        rule = rule_of(self._rules.content(), principal.name)
        if rule is None:
            raise forbidden(f"No rule of impersonation matches the principal {principal.name}.")
        if not rule.options:
            return self.own
        found = self._users.get(rule.options)
        return found if found is not None else self._add(rule)

    def _add(self, rule: ImpersonationRule) -> KafkaUser | None:
        # a client that is being closed still has its threads and connections
        if len(self._users) + len(self._closing) >= self._settings.kafka_users_max:
            return None
        user = KafkaUser(self._settings.with_options(dict(rule.options)), self._metrics, self._share())
        user.producer.start()
        self._users[rule.options] = user
        log.info("a Kafka user is in use", rule=rule.name)
        return user

    def _share(self) -> Room:
        size_bytes = self._settings.buffer_bytes
        return Room(size_bytes if self._rules is None else max(1, size_bytes // SHARES), within=self.room)

    def _close_least_used(self) -> None:
        idle = [(user.last_used_s, options) for options, user in self._users.items() if not user.requests]
        if idle and not self._closing:
            self._close(min(idle)[1])

    async def _sweep(self) -> None:
        life_s = self._settings.kafka_user_idle_ms / 1000
        while True:
            await asyncio.sleep(SWEEP_PAUSE_S)
            now_s = time.monotonic()
            for options, user in list(self._users.items()):
                if not user.requests and now_s - user.last_used_s > life_s:
                    self._close(options)

    def _close(self, options: tuple[tuple[str, str], ...]) -> None:
        user = self._users.pop(options)
        task = in_background("closing a Kafka user of the bridge", self._closed(user))
        self._closing.add(task)
        task.add_done_callback(self._note_closed)

    def _note_closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self._place_may_be_free.set()

    async def _closed(self, user: KafkaUser) -> None:
        left = await user.stop(within_ms=self._settings.shutdown_timeout_ms)
        log.info("an unused Kafka user was closed", records_left=left)
