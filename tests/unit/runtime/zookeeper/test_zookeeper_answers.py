"""Starts that need an answer of ZooKeeper while the connection is lost."""

from __future__ import annotations

import pytest
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
)

from runtime.zookeeper.client import until_answered


class Step:
    """A step that fails in turn with each of these errors, then answers."""

    def __init__(self, *errors: type[KazooException]) -> None:
        self._errors = list(errors)

    async def __call__(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


async def test_a_step_is_done_again_after_every_way_to_lose_the_connection() -> None:
    assert await until_answered(Step(ConnectionLoss, SessionExpiredError, ConnectionClosedError)) == "answer"


@pytest.mark.parametrize("error", [NoNodeError, NoAuthError])
async def test_an_answer_that_refuses_is_an_answer(error: type[KazooException]) -> None:
    with pytest.raises(error):
        await until_answered(Step(error))
