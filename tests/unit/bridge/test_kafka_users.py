"""Kafka users of a bridge that has fewer places than rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bridge.access.kafka_users import WAITING_MAX, KafkaUsers
from bridge.access.logins import HttpPrincipal
from bridge.config import load_bridge_settings
from bridge.core.refusals import Refused
from bridge.metrics import BridgeMetrics
from tests.support.eventually import eventually

RULES = """
impersonation.rules=one,two
impersonation.one.principals=one
impersonation.one.client.client.rack=one
impersonation.two.principals=two
impersonation.two.client.client.rack=two
"""
ONE, TWO = HttpPrincipal("one"), HttpPrincipal("two")


@asynccontextmanager
async def one_place(directory: Path, *, wait_ms: int) -> AsyncIterator[KafkaUsers]:
    rules = directory / "rules"
    rules.write_text(RULES)
    security: Any = SimpleNamespace(rules_file=rules)
    given = {
        "bootstrap.servers": "127.0.0.1:1",
        "antipode.impersonation.users.max": "1",
        "antipode.admin.timeout.ms": str(wait_ms),
        "shutdown.graceful.ms": "0",
    }
    users = KafkaUsers(load_bridge_settings(given), security, BridgeMetrics(CollectorRegistry()))
    users.start()
    try:
        yield users
    finally:
        await users.stop(within_ms=0)


async def test_a_request_waits_until_the_user_of_another_rule_is_idle_and_closed(tmp_path: Path) -> None:
    async with one_place(tmp_path, wait_ms=60_000) as users:
        waits = asyncio.Event()

        async def ask() -> None:
            waits.set()
            async with users.acting_for(TWO) as second:
                assert second is not users.own

        async with users.acting_for(ONE):
            asked = asyncio.create_task(ask())
            await waits.wait()
            assert users._waiting_count == 1
        await asked
        assert users._waiting_count == 0


async def test_requests_that_find_no_place_in_time_or_wait_in_too_great_a_number_are_refused(tmp_path: Path) -> None:
    async with one_place(tmp_path, wait_ms=200) as users, users.acting_for(ONE):

        async def ask() -> None:
            async with users.acting_for(TWO):
                pass

        asked = [asyncio.create_task(ask()) for _ in range(WAITING_MAX + 5)]
        await eventually(lambda: sum(task.done() for task in asked) >= 5)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {outcome.status for outcome in outcomes if isinstance(outcome, Refused)} == {429}
        assert len([one for one in outcomes if "requests wait" in str(one)]) == 5


async def test_a_place_is_not_closed_under_a_request(tmp_path: Path) -> None:
    async with one_place(tmp_path, wait_ms=200) as users, users.acting_for(ONE) as first:
        with pytest.raises(Refused, match="as many Kafka users"):
            async with users.acting_for(TWO):
                pass
        async with users.acting_for(ONE) as again:
            assert again is first
