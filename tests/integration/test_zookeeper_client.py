"""The ZooKeeper door when kazoo fails under it."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from runtime.zookeeper import SessionState, ZooKeeper
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")
async def test_after_kazoo_gave_its_connection_up_another_session_is_begun(
    zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper = ZooKeeper(zookeeper_connect, session_timeout_ms=4000)
    await zookeeper.start()
    seen: list[SessionState] = []
    zookeeper.on_session(seen.append)
    connection: Any = zookeeper._client._connection
    first = zookeeper.session_id

    def lose_count(handler: Any, header: Any, buffer: Any, offset: int) -> None:
        monkeypatch.undo()
        _, pending, _ = connection.client._pending.popleft()
        error = RuntimeError("xids do not match")
        pending.set_exception(error)
        raise error

    try:
        await zookeeper.create("/ephemeral", is_ephemeral=True)
        monkeypatch.setattr(type(connection), "_read_response", lose_count)
        with pytest.raises(ConnectionLoss):
            await zookeeper.get("/ephemeral")
        await eventually(lambda: zookeeper.state is SessionState.CONNECTED and zookeeper.session_id != first, 30_000)
        assert seen == [SessionState.LOST, SessionState.CONNECTED]
        assert await zookeeper.exists("/") is not None
    finally:
        await zookeeper.stop()
