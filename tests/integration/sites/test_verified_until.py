"""The active site proves continuously that its standby is equal, and reports the time of the proof
and the differences.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_access import link_of_status
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration

CRC_POSITION = 17
BODY_POSITION = 63
WITHIN_MS = 120_000


def await_verified(sites: EmbeddedSites, since_ms: int) -> None:
    """Wait until all that was written before this time is proven equal."""

    def is_verified() -> bool:
        found = link_of_status(sites)
        assert not found["differences"], found["first_difference"]
        return (found["verified_until_ms"] or 0) > since_ms

    eventually_sync(is_verified, WITHIN_MS)


def flip_a_bit_of_the_last_batch(segment: Path, at: int = CRC_POSITION) -> None:
    """Flip a bit in the checksum of the batch's header, or elsewhere in the batch."""
    content = bytearray(segment.read_bytes())
    position = 0
    while (following := position + 12 + int.from_bytes(content[position + 8 : position + 12], "big")) < len(content):
        position = following
    with segment.open("r+b") as file:
        file.seek(position + at)
        file.write(bytes([content[position + at] ^ 1]))


async def test_sites_are_proven_equal_until_a_moment_and_a_changed_batch_is_named(start_sites: SitesStarter) -> None:
    sites = start_sites()
    await create_topic(sites)
    produce(sites, 5_000)
    produce(sites, 1)
    written_ms = round(time.time() * 1000)
    assert await equal_ends(sites) == {(TOPIC, 0): 5_001}
    await_verified(sites, written_ms)
    assert "both sites are proven equal until" in sites.command("status").stdout
    checks = json.loads(sites.command("links", "check", "a-b", "--output", "json").stdout)["checks"]
    assert ("proof", "ok") in [(one["check"], one["outcome"]) for one in checks]
    (segment,) = sites.directory.glob(f"sites/b/**/{TOPIC}-0/00000000000000000000.log")
    flip_a_bit_of_the_last_batch(segment)

    def differs() -> bool:
        return bool(link_of_status(sites)["differences"] == 1)

    eventually_sync(differs, WITHIN_MS)
    done = sites.command("status")
    assert done.returncode == 1
    assert f"{TOPIC}-0 offsets 5000 to 5000 differ in crc" in " ".join(done.stdout.split())
    flip_a_bit_of_the_last_batch(segment)
    await_verified(sites, round(time.time() * 1000))


async def test_a_bit_that_changes_on_a_disk_is_found_by_reading_it(start_sites: SitesStarter) -> None:
    sites = start_sites("--broker-config", "antipode.log.scrub.interval.ms=500")
    await create_topic(sites)
    produce(sites, 10)
    assert await equal_ends(sites) == {(TOPIC, 0): 10}
    (segment,) = sites.directory.glob(f"sites/b/**/{TOPIC}-0/00000000000000000000.log")
    flip_a_bit_of_the_last_batch(segment, BODY_POSITION)

    def is_named() -> bool:
        done = sites.command("reconcile", "--link", "a-b", "--quick")
        text = " ".join(done.stdout.split())
        assert done.returncode == 2, text
        assert f"{TOPIC}-0 at site b: the batch at offsets" in text
        assert "is damaged on the disk" in text
        return True

    eventually_sync(is_named, WITHIN_MS)
    eventually_sync(lambda: "is damaged on the disk" in link_of_status(sites)["not_proven_because"], WITHIN_MS)
    checks = json.loads(sites.command("links", "check", "a-b", "--output", "json").stdout)["checks"]
    (proof,) = [one for one in checks if one["check"] == "proof"]
    assert (proof["outcome"], "is damaged on the disk" in proof["detail"]) == ("warning", True), proof
    done = sites.command("reconcile", "--link", "a-b", "--records-only", "--output", "json")
    (found,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, found["kind"], found["site"], found["last_offset"]) == (1, "corrupt", "b", 9)
    flip_a_bit_of_the_last_batch(segment, BODY_POSITION)
    await_verified(sites, round(time.time() * 1000))


async def test_a_bit_that_changes_on_a_disk_is_found_in_a_compacted_topic_of_either_site(
    start_sites: SitesStarter,
) -> None:
    """The sites' logs of a compacted topic differ, so that it is not compared by digests."""
    sites = start_sites("--broker-config", "antipode.log.scrub.interval.ms=500")
    await create_topic(sites)
    produce(sites, 10)
    done = sites.command(*("topics", "configs", TOPIC, "-b", sites.bootstrap("a"), "--set", "cleanup.policy=compact"))
    assert done.returncode == 0, done.stderr
    assert await equal_ends(sites) == {(TOPIC, 0): 10}
    left_out = f"topic {TOPIC}: a compacted log has no digests"
    eventually_sync(lambda: link_of_status(sites)["not_covered_by_proof"].startswith(left_out), WITHIN_MS)
    assert left_out in " ".join(sites.command("status").stdout.split())
    for site in ("a", "b"):
        (segment,) = sites.directory.glob(f"sites/{site}/**/{TOPIC}-0/00000000000000000000.log")
        flip_a_bit_of_the_last_batch(segment, BODY_POSITION)
        place = f"{TOPIC}-0 at site {site}: the batch at offsets"

        def is_named(place: str = place) -> bool:
            done = sites.command("reconcile", "--link", "a-b", "--quick")
            return done.returncode == 2 and place in " ".join(done.stdout.split())

        eventually_sync(is_named, WITHIN_MS)
        eventually_sync(lambda place=place: place in link_of_status(sites)["not_proven_because"], WITHIN_MS)
        flip_a_bit_of_the_last_batch(segment, BODY_POSITION)

        def is_sound(place: str = place) -> bool:
            return not link_of_status(sites)["not_proven_because"]

        eventually_sync(is_sound, WITHIN_MS)
