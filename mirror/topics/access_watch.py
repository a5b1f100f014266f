"""Waits until the access rules of a link's source change, so that a change is carried at once. A
site of an earlier release does not offer this: its changes are carried at the next interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mirror.link.link_watch import LinkView
from wire.client.raw_client import KafkaClient
from wire.client.requests.answer_checks import check_outcome, controller_connection
from wire.protocol.messages.access_change_messages import ACCESS_CHANGES

ANSWER_MARGIN_MS: Final = 2_000
"""A connection whose answer is later than the end of the wait by this much is closed."""


class AccessWatch:
    """The watch over the rules of one site."""

    def __init__(self, client: KafkaClient, link: Callable[[], LinkView]) -> None:
        """`client` serves the waits alone: a wait delays other requests on its connection."""
        self._client = client
        self._link = link
        self._mark = ""

    async def changed(self, *, timeout_ms: float) -> None:
        """Wait until the rules differ from those at the end of the last call, or until the timeout.
        The first call returns at once. KafkaClientError.
        """
        connection = await controller_connection(self._client)
        answer = await connection.call(
            ACCESS_CHANGES,
            {"link": self._link().name, "mark": self._mark, "max_wait_ms": round(timeout_ms)},
            timeout_ms=timeout_ms + ANSWER_MARGIN_MS,
        )
        check_outcome(answer, connection, ACCESS_CHANGES)
        self._mark = answer.mark

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()
