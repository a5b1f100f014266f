"""One look at a link whose mirror takes its time to answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from cli.administration.status import VERDICT_COUNTS_MS, look, not_protected_because, problems
from dr.drill.environment import Environment, EnvironmentLink, EnvironmentMirror, EnvironmentSite
from dr.drill.lag import LagSample, SeenVerdict
from runtime.clock import SystemClock
from tests.support.processes.ports import LOOPBACK
from wire.control import mirror_pb2, mirror_pb2_grpc, site_pb2, site_pb2_grpc
from wire.control.broker_pb2 import EpochStart, PartitionDescription
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.control.site_pb2 import LinkProtection

RECORD = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1)


class Agent(site_pb2_grpc.SiteAgentServicer):
    """An agent of either site; it knows the link, and a partition with these leader epochs."""

    def __init__(self, end: int = 0, epochs: Sequence[tuple[int, int]] = ()) -> None:
        self._partition = PartitionDescription(
            topic="flights",
            log_end_offset=end,
            high_watermark=end,
            epochs=[EpochStart(epoch=epoch, start_offset=start) for epoch, start in epochs],
        )

    async def GetSiteView(self, request: Any, context: Any) -> site_pb2.GetSiteViewReply:
        return site_pb2.GetSiteViewReply(view=SiteView(controller_id=1))

    async def ListLinks(self, request: Any, context: Any) -> site_pb2.ListLinksReply:
        return site_pb2.ListLinksReply()

    async def DescribeLink(self, request: Any, context: Any) -> site_pb2.DescribeLinkReply:
        protection = LinkProtection(epoch=1, since_ms=1_000, judged_at_ms=SystemClock().now_ms())
        return site_pb2.DescribeLinkReply(record=RECORD, partitions=[self._partition], protection=protection)


class SlowMirror(mirror_pb2_grpc.MirrorAdminServicer):
    """A mirror that needs a second to answer, and never answers if the deadline is shorter."""

    state, reason = "MIRRORING", ""

    async def DescribeMirror(self, request: Any, context: Any) -> mirror_pb2.DescribeMirrorReply:
        if context.time_remaining() < 1:
            await asyncio.Event().wait()
        return mirror_pb2.DescribeMirrorReply(link="a-b", state=self.state, reason=self.reason)


@asynccontextmanager
async def serving(agent: Agent | None = None) -> AsyncIterator[str]:
    server = grpc.aio.server()
    site_pb2_grpc.add_SiteAgentServicer_to_server(agent or Agent(), server)  # type: ignore[no-untyped-call]
    mirror_pb2_grpc.add_MirrorAdminServicer_to_server(SlowMirror(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    try:
        yield f"{LOOPBACK}:{port}"
    finally:
        await server.stop(None)


async def test_a_slow_mirror_is_not_reported_as_silent(monkeypatch: Any) -> None:
    monkeypatch.setattr("cli.administration.status.MIRROR_TIMEOUT_S", 60.0)
    parts: Any = {"pid": None, "dir": "", "log": "", "command": (), "env": {}}
    async with serving() as address:
        site = EnvironmentSite(bootstrap_servers="", grpc=(address,), processes=())
        known = Environment(
            sites={"a": site, "b": site},
            links=(EnvironmentLink(name="a-b", source="a", target="b"),),
            mirrors=(EnvironmentMirror(name="a-b", link="a-b", site="b", grpc=address, **parts),),
        )
        found = await look(known)
    (link,) = found["links"]
    assert link["mirror"] == "MIRRORING"
    assert link["protected_since_ms"] == 1_000
    assert problems(found["sites"], found["links"]) == []


async def test_a_standby_that_is_longer_and_has_another_history_is_named_with_what_it_lacks() -> None:
    async with serving(Agent(7, [(0, 0), (9, 4)])) as active, serving(Agent(10, [(0, 0)])) as standby:
        places = {"a": active, "b": standby}
        known = Environment(
            sites={
                name: EnvironmentSite(bootstrap_servers="", grpc=(address,), processes=())
                for name, address in places.items()
            },
            links=(EnvironmentLink(name="a-b", source="a", target="b"),),
        )
        found = await look(known)
    (reported,) = found["links"]
    assert (reported["lag_records"], reported["copyable_records"]) == (3, 3)
    (problem,) = found["problems"]
    assert problem.startswith(
        "link a-b: flights-0 differs from offset 4 on: b has 6 records of its own (offsets 4 to 9)"
    )


def link(**fields: Any) -> dict[str, Any]:
    known = {
        "name": "a-b",
        "source": "a",
        "target": "b",
        "active_site": "b",
        "epoch": 2,
        "lag_records": 100,
        "not_protected_because": "",
        "differences": None,
        "first_difference": "",
        "not_proven_because": "",
        "not_covered_by_proof": "",
        "mirror": "PROMOTED",
        "mirror_reason": "",
        "mirror_report_age_ms": 400,
        "mirror_problems": [],
        "differing": [],
        "quarantines": [],
        "quarantine_problems": [],
        "deposed": [],
        "lease_problems": [],
        "is_contested": False,
    }
    return {**known, **fields}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"active_site": ""}, "neither site knows which one is active"),
        ({"unreachable": ("a",)}, "a, the active site, does not answer"),
        ({"protection": None}, "a has not judged it yet in epoch 1"),
        ({"epoch": 2}, "a has not judged it yet in epoch 2"),
        ({"at_ms": 1_000 + VERDICT_COUNTS_MS + 5_000}, "the last verdict of a is 125 s old"),
        (
            {"protection": SeenVerdict(epoch=1, since_ms=0, judged_at_ms=1_000, reason="b does not answer")},
            "b does not answer",
        ),
    ],
)
def test_a_link_is_called_protected_only_with_a_verdict_that_counts(changes: dict[str, Any], reason: str) -> None:
    verdict = SeenVerdict(epoch=1, since_ms=500, judged_at_ms=1_000, reason="")
    sample = LagSample(
        **{"at_ms": 2_000, "lag_records": 0, "active_site": "a", "epoch": 1, "protection": verdict, **changes}
    )
    found = not_protected_because(sample, now_ms=sample.at_ms if sample.at_ms > 2_000 else 1_000)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_a_link_that_is_not_protected_is_a_problem_named_once() -> None:
    reason = "flights-0 differs from offset 4 on; and 2 more"
    reported = problems({}, [link(not_protected_because=reason, differing=["flights-0 differs from offset 4 on"])])
    assert reported == [f"link a-b: not protected because {reason}"]


def test_a_link_with_a_mirror_back_and_equal_histories_is_well() -> None:
    assert problems({}, [link()]) == []
    assert problems({}, [link(mirror="MIRRORING")]) == []


def test_a_standby_with_another_history_is_a_problem() -> None:
    assert problems({}, [link(differing=["flights-0 differs"])]) == ["link a-b: flights-0 differs"]


def test_a_mirror_that_needs_a_person_is_reported_with_its_reason() -> None:
    reported = problems({}, [link(mirror="RESET", mirror_reason="the source has deleted topic t")])
    assert reported == ["link a-b: the mirror is RESET: the source has deleted topic t"]
