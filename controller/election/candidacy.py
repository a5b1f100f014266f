"""Election of one active controller per site through ZooKeeper.

A candidate creates the ephemeral `/controller` and raises `/controller_epoch` in one transaction,
so every controller has an epoch of its own, and only an elected controller raises the epoch. A
candidate waits until the `/controller` of another session expires, even of its own former session.
It replaces a `/controller` of its present session, whose creation was not confirmed because the
connection broke. The registration also replaces the registration of a controller that refuses
connections: if that controller still runs, the higher epoch deposes it. A tenure ends when the node
is gone or belongs to another session, when the session is lost, or when ZooKeeper is unreachable
for as long as the session lives: kazoo reports a loss only after it reconnects.

A candidate claims nothing in a ZooKeeper without the cluster id that the candidate found at its
start: the data is lost, or it is another cluster's. The claim checks the id's node, too.
"""

from __future__ import annotations

import asyncio

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError

from controller.stored.tenure import Tenure
from controller.watching.watches import setter
from runtime.clock import Clock
from runtime.listening import until_refused
from runtime.logs import get_logger, state_change_logger
from runtime.retries import jittered_backoff
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CheckNode, CreateNode, DeleteNode, NodeStat, SetNode, TransactionStep
from runtime.zookeeper.sessions import SessionState
from wire.znodes import layout as znodes
from wire.znodes.acl_znodes import ACL_PATHS
from wire.znodes.cluster_znodes import (
    ControllerRegistration,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from wire.znodes.controller_znodes import EPOCH_RAISES, UNREGISTERED_BROKERS
from wire.znodes.documents import MalformedZnode
from wire.znodes.token_znodes import TOKEN_PATHS

RESIGN_TIMEOUT_S = 2.0

_log = get_logger(__name__)


async def _refused(address: str) -> bool:
    """Like `until_refused`, and returns True."""
    await until_refused(address)
    return True


def _decoded_id(payload: bytes) -> str:
    try:
        return decode_cluster_id(payload)
    except MalformedZnode as error:
        return f"malformed: {error}"


class Candidacy:
    """Takes part in elections; while elected, notices when another controller has replaced this
    one.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        *,
        node_id: int,
        cluster_id: str,
        grpc_address: str,
        session_timeout_ms: int,
        clock: Clock,
    ) -> None:
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._grpc_address = grpc_address
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._state_changed = asyncio.Event()
        self.active_controller: ControllerRegistration | None = None
        zookeeper.on_session(lambda _: self._state_changed.set())

    async def win(self) -> Tenure:
        """Return when this candidate has been elected."""
        retrying = jittered_backoff(retry_on=KazooException, initial_ms=50, max_ms=1000)
        async for attempt in retrying:
            with attempt:
                return await self._stand_until_elected()
        raise AssertionError("retrying without a bound ended")

    async def _stand_until_elected(self) -> Tenure:
        await self._until_own_cluster()
        await self._create_layout()
        while True:
            identity = await self._until_own_cluster()
            changed = asyncio.Event()
            # the epoch is read first: a claim under it fails when another candidate was elected
            # after the node was read
            epoch = await self._zookeeper.get(znodes.CONTROLLER_EPOCH)
            found = await self._zookeeper.get_or_none(znodes.CONTROLLER, watch=setter(changed))
            # a node of this session is the own claim, whose answer was lost: it is replaced below
            if found is not None and found[1].ephemeral_owner != self._zookeeper.session_id:
                self._learn(found[0])
                if not await self._is_abandoned(changed):
                    continue
                _log.warning("active controller refuses connections; claiming its role")
            tenure = await self._claim(epoch, None if found is None else found[1], identity)
            if tenure is not None:
                return tenure

    async def _until_own_cluster(self) -> NodeStat:
        """Wait until ZooKeeper has the cluster id of this candidate; the stat of its node."""
        problem = ""
        while True:
            changed = asyncio.Event()
            self._state_changed.clear()
            found = await self._zookeeper.get_or_none(znodes.CLUSTER_ID, watch=setter(changed))
            stored = "" if found is None else _decoded_id(found[0])
            if found is not None and stored == self._cluster_id:
                return found[1]
            former, problem = problem, f"ZooKeeper has the cluster id {stored!r}" if stored else "ZooKeeper has none"
            if problem != former:
                _log.error(
                    "candidate does not stand: ZooKeeper is not that of its cluster",
                    cluster_id=self._cluster_id,
                    problem=problem,
                    path=znodes.CLUSTER_ID,
                )
            await self._wait_any(changed, timeout_s=None)

    async def _is_abandoned(self, changed: asyncio.Event) -> bool:
        """Wait until the controller's node changes (False), or the controller's address refuses
        connections (True).
        """
        known = self.active_controller
        waits: list[asyncio.Future[bool]] = [asyncio.ensure_future(changed.wait())]
        # this process itself answers at its own address
        if known is not None and known.grpc_address not in ("", self._grpc_address):
            waits.append(asyncio.ensure_future(_refused(known.grpc_address)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                if wait.done():
                    wait.result()  # raises if the wait failed: a failed probe is no refusal
            # if both happened, the change counts: the node may belong to another controller
            return not changed.is_set()
        finally:
            for wait in waits:
                wait.cancel()

    async def _create_layout(self) -> None:
        for path in (*znodes.PERSISTENT_PATHS, *ACL_PATHS, *TOKEN_PATHS, UNREGISTERED_BROKERS, EPOCH_RAISES):
            await self._zookeeper.ensure_path(path)
        if await self._zookeeper.exists(znodes.CONTROLLER_EPOCH) is None:
            try:
                await self._zookeeper.create(znodes.CONTROLLER_EPOCH, encode_controller_epoch(0))
            except NodeExistsError:
                _log.info("another candidate created the site's znodes first")

    async def _claim(self, former: tuple[bytes, NodeStat], left: NodeStat | None, identity: NodeStat) -> Tenure | None:
        """Try once to become controller with the epoch after `former`, and replace the node `left`
        if there is one. None if another candidate was faster, or the node of the cluster id is not
        `identity`.
        """
        payload, stat = former
        epoch = decode_controller_epoch(payload) + 1
        registration = ControllerRegistration(
            controller_id=self._node_id, timestamp_ms=self._clock.now_ms(), grpc_address=self._grpc_address
        )
        steps: list[TransactionStep] = [CheckNode(path=znodes.CLUSTER_ID, version=identity.version)]
        if left is not None:
            # in one transaction with the new node: between two transactions another candidate could
            # create its node
            steps.append(DeleteNode(path=znodes.CONTROLLER, version=left.version))
        steps += [
            CreateNode(path=znodes.CONTROLLER, value=encode_controller(registration), is_ephemeral=True),
            # the version fences: a candidate that read an older epoch cannot claim
            SetNode(path=znodes.CONTROLLER_EPOCH, value=encode_controller_epoch(epoch), version=stat.version),
        ]
        try:
            await self._zookeeper.transaction(steps)
        except (NodeExistsError, BadVersionError, NoNodeError):
            return None
        self.active_controller = registration
        state_change_logger().info("controller elected", controller=self._node_id, controller_epoch=epoch)
        return Tenure(controller_id=self._node_id, epoch=epoch, epoch_version=stat.version + 1)

    def _learn(self, payload: bytes) -> None:
        try:
            self.active_controller = decode_controller(payload)
        except MalformedZnode as error:
            _log.error("the active controller is unknown", problem=str(error))
            # a node that cannot be decoded still has a living owner, so it is not replaced; only
            # its address is unknown
            self.active_controller = None

    async def until_deposed(self, tenure: Tenure) -> str:
        """Return, with the reason, when the tenure has ended or has become doubtful."""
        while True:
            self._state_changed.clear()
            if self._zookeeper.state is SessionState.LOST:
                return "the ZooKeeper session is lost"
            if self._zookeeper.state is SessionState.SUSPENDED:
                try:
                    # kazoo reports LOST only after it has reconnected: the session may have ended
                    # long before
                    async with asyncio.timeout(self._session_timeout_ms / 1000):
                        await self._state_changed.wait()
                except TimeoutError:
                    return f"ZooKeeper is out of reach for {self._session_timeout_ms} ms"
                continue
            changed = asyncio.Event()
            try:
                reason = await self._reason_to_go(tenure, changed)
            except KazooException:
                # a short wait: a deposed controller must notice soon after the connection returns
                await self._wait_any(changed, timeout_s=0.2)
                continue
            if reason:
                return reason
            await self._wait_any(changed, timeout_s=None)

    async def _reason_to_go(self, tenure: Tenure, changed: asyncio.Event) -> str:
        found = await self._zookeeper.get_or_none(znodes.CONTROLLER, watch=setter(changed))
        if found is None:
            return "the controller node is gone"
        # the watch comes with the read: no change can be missed between them
        if found[1].ephemeral_owner != self._zookeeper.session_id:
            return "the controller node is another session's"
        # another controller may have been elected and have resigned meanwhile; only the epoch shows
        # that
        stat = await self._zookeeper.exists(znodes.CONTROLLER_EPOCH)
        if stat is None or stat.version != tenure.epoch_version:
            return "the controller epoch has moved on"
        return ""

    async def _wait_any(self, changed: asyncio.Event, *, timeout_s: float | None) -> None:
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(self._state_changed.wait())]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def resign(self, tenure: Tenure, reason: str) -> None:
        """Resign: delete the own `/controller` node, if it still exists and ZooKeeper is
        connected.
        """
        self.active_controller = None
        state_change_logger().info(
            "controller resigned", controller=self._node_id, controller_epoch=tenure.epoch, reason=reason
        )
        # without a connection the session's end removes the node
        if self._zookeeper.state is not SessionState.CONNECTED:
            return
        try:
            async with asyncio.timeout(RESIGN_TIMEOUT_S):
                found = await self._zookeeper.get_or_none(znodes.CONTROLLER)
                if found is not None and found[1].ephemeral_owner == self._zookeeper.session_id:
                    # by version and owner: never the node of the next controller
                    await self._zookeeper.delete(znodes.CONTROLLER, version=found[1].version)
        except (KazooException, TimeoutError) as error:
            _log.warning("the controller node could not be removed and ends with the session", problem=repr(error))
