"""This broker in its site's ZooKeeper: its registration, the cluster id, the active controller.

The registration is ephemeral: when the session expires the broker registers again in a new session,
with a new broker epoch (the znode's creation zxid). A node id that a live broker holds is refused;
for one that an expired session of this broker holds, the broker waits. Topics and links are never
read here: the controller sends them.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from broker.settings.config import BrokerSettings
from broker.settings.config_store import ZooKeeperConfigStore
from runtime.chance import new_uuid
from runtime.clock import Clock
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from runtime.supervision import Supervisor
from runtime.zookeeper.client import ZooKeeper, until_answered
from runtime.zookeeper.sessions import SessionState
from wire.znodes import layout as znodes
from wire.znodes.broker_znodes import BrokerRegistration, encode_broker
from wire.znodes.cluster_znodes import decode_cluster_id, decode_controller, encode_cluster_id
from wire.znodes.documents import MalformedZnode

log = get_logger(__name__)

TAKEN_WAIT_EXTRA_MS = 2_000  # the session's end is noticed some time after its timeout
ANSWER_TIMEOUT_MS = 3_000
"""Time (ms) to wait for ZooKeeper where the broker can do without the answer; kazoo itself waits
until ZooKeeper is back.
"""


class Membership:
    """Registers the broker and keeps it registered."""

    def __init__(self, settings: BrokerSettings, zookeeper: ZooKeeper, clock: Clock) -> None:
        self._settings = settings
        self._zookeeper = zookeeper
        self._clock = clock
        self._registration: BrokerRegistration | None = None
        self._has_new_session = asyncio.Event()
        self._loops = Supervisor()
        self.broker_epoch = 0
        self.session_changes: Counter[SessionState] = Counter()
        """The number of times that the session entered each state since the broker registered."""
        self.configs = ZooKeeperConfigStore(zookeeper, settings.node_id)
        self.on_registered: Callable[[int], None] | None = None

    async def cluster_id(self, *, known: str | None) -> str:
        """The site's cluster id, made when there is none; OperationalFailure when `known` (from the
        log folder) differs.
        """
        # the log folder decides, then the config: a broker never changes its cluster
        wanted = self._settings.cluster_id
        candidate = known or wanted or base64.urlsafe_b64encode(new_uuid().bytes).rstrip(b"=").decode()
        stored = await until_answered(lambda: self._stored_cluster_id(candidate))
        if wanted and wanted != stored:
            raise ConfigurationError(
                "antipode.cluster.id",
                wanted,
                f"the site's ZooKeeper holds {stored!r}; accepted: the same id, or an empty value",
            )
        if known is not None and known != stored:
            raise OperationalFailure(
                f"log folder {Path(self._settings.log_dir)} belongs to cluster {known}, "
                f"ZooKeeper at {self._settings.zookeeper_connect} to cluster {stored}"
            )
        return stored

    async def _stored_cluster_id(self, candidate: str) -> str:
        await self._zookeeper.ensure_path(znodes.CLUSTER)
        try:
            await self._zookeeper.create(znodes.CLUSTER_ID, encode_cluster_id(candidate))
        except NodeExistsError:
            # another broker was first: its id is the site's
            return decode_cluster_id((await self._zookeeper.get(znodes.CLUSTER_ID))[0])
        return candidate

    async def register(self, registration: BrokerRegistration) -> None:
        """Register now and after every lost session; OperationalFailure when the node id belongs to
        a live broker.
        """
        self._registration = registration
        await until_answered(lambda: self._zookeeper.ensure_path(znodes.BROKER_IDS))
        self._zookeeper.on_session(self._on_session)  # first, so that one that ends meanwhile is noticed
        await until_answered(lambda: self._create(registration))
        self._loops.start("registration", partial(self._register_again_and_again, registration))

    async def _create(self, registration: BrokerRegistration) -> None:
        path = znodes.broker_path(registration.node_id)
        deadline_ms = self._clock.monotonic_ms() + self._settings.zookeeper_session_timeout_ms + TAKEN_WAIT_EXTRA_MS
        while True:
            changed = asyncio.Event()
            try:
                await self._zookeeper.create(path, encode_broker(registration), is_ephemeral=True)
                break
            except NodeExistsError:
                holder = await self._zookeeper.exists(path, watch=lambda _, event=changed: event.set())  # type: ignore[misc]
                if holder is None:
                    continue
                # the answer to the own request was lost with a connection
                if holder.ephemeral_owner == self._zookeeper.session_id:
                    break
            left_ms = deadline_ms - self._clock.monotonic_ms()
            try:
                await asyncio.wait_for(changed.wait(), max(left_ms, 0) / 1000)
            except TimeoutError as error:
                raise OperationalFailure(
                    f"node.id={registration.node_id} is taken: a live broker is registered at {path}"
                ) from error
        stat = await self._zookeeper.exists(path)
        # the creation zxid grows over the whole site, so an epoch is never given twice
        self.broker_epoch = stat.czxid if stat is not None else 0
        log.info("registered", node_id=registration.node_id, broker_epoch=self.broker_epoch)
        if self.on_registered is not None:
            self.on_registered(self.broker_epoch)

    async def is_registered(self) -> bool:
        """True if ZooKeeper has the newest registration now. Raises KazooException."""
        stat = await self._zookeeper.exists(znodes.broker_path(self._settings.node_id))
        return (
            stat is not None and stat.ephemeral_owner == self._zookeeper.session_id and stat.czxid == self.broker_epoch
        )

    def _on_session(self, state: SessionState) -> None:
        self.session_changes[state] += 1
        log.warning("ZooKeeper session", state=state.value)
        if state is SessionState.CONNECTED:
            self._has_new_session.set()

    async def _register_again_and_again(self, registration: BrokerRegistration) -> None:
        while True:
            await self._has_new_session.wait()
            policy = jittered_backoff(retry_on=(KazooException, OperationalFailure), initial_ms=100, max_ms=2000)
            async for attempt in policy:
                with attempt:
                    # cleared before the try: a session that is lost meanwhile must wake the next
                    # one
                    self._has_new_session.clear()
                    try:
                        await self._create(registration)
                    except BaseException:
                        self._has_new_session.set()
                        raise

    async def controller_address(self) -> str:
        """gRPC address of the active controller, empty when none is elected or ZooKeeper is
        away.
        """
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000):
                data, _ = await self._zookeeper.get(znodes.CONTROLLER)
            return decode_controller(data).grpc_address
        except NoNodeError:
            return ""
        except (KazooException, TimeoutError) as error:
            log.warning("the active controller could not be read from ZooKeeper", reason=type(error).__name__)
            return ""
        except MalformedZnode as error:
            log.warning("the active controller is unknown", reason=str(error))
            return ""

    async def unregister(self) -> None:
        """Delete the registration, so that the controller does not wait for the session to
        expire.
        """
        await self._loops.stop()
        await self.configs.stop()
        registration, self._registration = self._registration, None
        if registration is None:
            return
        path = znodes.broker_path(registration.node_id)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000):
                stat = await self._zookeeper.exists(path)
                # the node may be that of a successor which has registered already
                if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                    await self._zookeeper.delete(path)
        except (KazooException, TimeoutError) as error:
            log.warning("the registration could not be deleted; it ends with the session", reason=type(error).__name__)
