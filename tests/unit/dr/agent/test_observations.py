"""An answer that consists of other answers."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from kazoo.exceptions import ConnectionLoss

from dr.agent.answers.answering import answers
from dr.agent.answers.observations import Observations
from wire.control import site_pb2 as site


class Aborted(Exception):
    """What gRPC raises in a handler that aborts its call."""


class Call:
    """The context of one call, which may be aborted once."""

    def __init__(self) -> None:
        self.statuses: list[grpc.StatusCode] = []

    def set_trailing_metadata(self, _: Any) -> None:
        """Nothing reads it here."""

    async def abort(self, code: grpc.StatusCode, _: str) -> None:
        self.statuses.append(code)
        raise Aborted


@answers
async def without_zookeeper(_agent: Any, _request: Any, _context: Any) -> Any:
    raise ConnectionLoss


class Agent(Observations):
    """An agent that has lost its ZooKeeper."""

    def __init__(self) -> None:
        """Without the parts of an agent."""

    DescribeLink = GetSiteView = ListLinks = ListFailovers = DescribeGroups = without_zookeeper  # type: ignore[assignment]


async def test_a_call_whose_parts_all_fail_has_one_status() -> None:
    call: Any = Call()
    with pytest.raises(Aborted):
        await Agent().ObserveLink(site.ObserveLinkRequest(link="a-b"), call)
    assert call.statuses == [grpc.StatusCode.UNAVAILABLE]
