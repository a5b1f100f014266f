"""Requests to the coordinator of one group or transactional id, step by step: sent without waiting,
or asked again until they are answered.

For tests that break a coordinator in the middle of something: `send` returns as soon as the request
is on its way, and the test can look at its outcome later (answered, or the connection lost). `ask`
does what clients do: find the coordinator, ask, and begin anew when it has gone. It does not ask
struck nodes for the coordinator.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.sites.replicated_site import ReplicatedSite
from wire.protocol.streams.frames import decode_response

GROUP, TRANSACTION = 0, 1
FIND_COORDINATOR, FIND_COORDINATOR_VERSION = 10, 5
WITHIN_MS = 120_000
ANSWER_S = 30.0

TRY_AGAIN = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
    }
)


class ConnectionLost(Exception):
    """The connection ended before the response. The request may have been executed."""


class Sent:
    """A request on its way, on a connection of its own."""

    def __init__(self, client: RawClient, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        self._client, self._api_key, self._version = client, api_key, version
        client.send_call(api_key, version, values)

    @property
    def is_settled(self) -> bool:
        """Whether a response has begun to arrive or the connection has ended, so that `answer` does
        not wait long.
        """
        return bool(select.select([self._client.socket], [], [], 0)[0])

    def answer(self) -> Any:
        """Wait for the answer. ConnectionLost when there is none."""
        with self._client:
            try:
                frame = self._client.read_frame()
            except OSError as error:
                raise ConnectionLost(str(error)) from error
        if not frame:
            raise ConnectionLost("closed by the broker")
        return decode_response(frame, self._api_key, self._version)

    def drop(self) -> None:
        """Stop waiting for the answer."""
        self._client.socket.close()


class CoordinatorCalls:
    """The coordinator of one key as its clients see it."""

    def __init__(self, site: ReplicatedSite, struck: set[int], *, key: str, key_type: int) -> None:
        self._site, self._struck, self._key, self._key_type = site, struck, key, key_type

    def send(self, api_key: int, version: int, values: Mapping[str, Any], *, timeout_s: float = ANSWER_S) -> Sent:
        """Send to the current coordinator. Raises ConnectionLost if no broker names it, or if it
        cannot be reached.
        """
        client = self._connected(self._coordinator(), timeout_s)
        try:
            return Sent(client, api_key, version, values)
        except OSError as error:
            client.socket.close()
            raise ConnectionLost(str(error)) from error

    def ask(self, api_key: int, version: int, values: Mapping[str, Any], error_of: Callable[[Any], ErrorCode]) -> Any:
        """The first answer that does not say "try again"; asked anew when the coordinator
        changes.
        """

        def once() -> Any:
            try:
                answer = self.send(api_key, version, values).answer()
            except ConnectionLost as error:
                raise AssertionError(f"no answer: {error}") from error
            assert error_of(answer) not in TRY_AGAIN, f"{error_of(answer).name}"
            return answer

        return eventually_sync(once, WITHIN_MS)

    def _coordinator(self) -> int:
        values = {"key_type": self._key_type, "coordinator_keys": [self._key]}
        refusals: dict[int, str] = {}
        for node_id in self._site.nodes.keys() - self._struck:
            try:
                with self._connected(node_id, ANSWER_S) as client:
                    sent = Sent(client, FIND_COORDINATOR, FIND_COORDINATOR_VERSION, values)
                    (found,) = sent.answer().coordinators
            except (OSError, ConnectionLost) as error:
                refusals[node_id] = str(error)
                continue
            if found.error_code is ErrorCode.none and found.node_id not in self._struck:
                return int(found.node_id)
            refusals[node_id] = f"{ErrorCode(found.error_code).name}, node {found.node_id}"
        raise ConnectionLost(f"no broker coordinates {self._key}: {refusals}")

    def _connected(self, node_id: int, timeout_s: float) -> RawClient:
        try:
            return RawClient(self._site.nodes[node_id].port, client_id=self._key, timeout_s=timeout_s)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
