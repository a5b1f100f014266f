"""Automatic failovers that wait for a person, although the active site is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import create_topic, equal_ends, produce
from tests.support.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400), pytest.mark.long]

PATIENT_MS = 120_000


async def link_at(sites: EmbeddedSites, site: str) -> dict[str, Any]:
    """The link as a site sees it."""
    done = await asyncio.to_thread(sites.command, "links", "list", "--output", "json")
    (found,) = [one for one in json.loads(done.stdout) if one["site"] == site]
    return dict(found)


def says(sites: EmbeddedSites, site: str, *words: str) -> Callable[[], Awaitable[bool]]:
    """Whether the failover verdict of the standby's agents has these words."""

    async def look() -> bool:
        verdict = str((await link_at(sites, site))["lease"]["failover_verdict"])
        return all(word in verdict for word in words)

    return look


def is_active(sites: EmbeddedSites, site: str, *, epoch: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        link = (await link_at(sites, site))["link"]
        return bool((link["active_site"], link["epoch"]) == (site, epoch))

    return look


def protects(sites: EmbeddedSites, standby: str) -> Callable[[], Awaitable[bool]]:
    """Whether the standby would be promoted if the active site were lost."""

    async def look() -> bool:
        verdict = str((await link_at(sites, standby))["lease"]["failover_verdict"])
        # empty before the first look of an agent that has just started
        return verdict not in ("", "None") and "first copy" not in verdict

    return look


async def test_f16_f8_a_copy_that_is_not_complete_or_a_third_failover_within_the_hour_waits_for_a_person(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites("--arbiter", "--lease-ms", "2000", "--failover", "automatic")
    sites.process("mirror-a-b").kill()
    await create_topic(sites)
    produce(sites, 50)
    # F16: the site is lost during the first copy
    sites.broker("a").kill()
    await eventually(says(sites, "b", "a person has to decide", "first copy at b was not complete"), PATIENT_MS)
    sites.restart(sites.broker("a"))
    sites.process("mirror-a-b").start()
    await equal_ends(sites)
    await eventually(protects(sites, "b"), PATIENT_MS)
    assert (await link_at(sites, "b"))["link"]["epoch"] == 1
    # the first failover, and F16 again: the new active site is lost right after the reversal
    sites.process("mirror-b-a").kill()
    sites.broker("a").kill()
    await eventually(is_active(sites, "b", epoch=2), PATIENT_MS)
    sites.restart(sites.broker("a"))
    produce(sites, 10, site="b")
    sites.broker("b").kill()
    await eventually(says(sites, "a", "a person has to decide", "first copy at a was not complete"), PATIENT_MS)
    sites.restart(sites.broker("b"))
    sites.process("mirror-b-a").start()
    await equal_ends(sites)
    await eventually(protects(sites, "a"), PATIENT_MS)
    assert (await link_at(sites, "a"))["link"]["epoch"] == 2
    # F8: the second failover is the last one within the hour
    sites.broker("b").kill()
    await eventually(is_active(sites, "a", epoch=3), PATIENT_MS)
    sites.restart(sites.broker("b"))
    await equal_ends(sites)
    await eventually(protects(sites, "b"), PATIENT_MS)
    sites.broker("a").kill()
    await eventually(
        says(sites, "b", "a person has to decide", "has failed over 2 times within the last hour"), PATIENT_MS
    )
    assert (await link_at(sites, "b"))["link"]["epoch"] == 3
    done = await asyncio.to_thread(sites.command, "failover", LINK, "--to", "b")
    assert done.returncode == 0, done.stdout + done.stderr
    await eventually(is_active(sites, "b", epoch=4), PATIENT_MS)
