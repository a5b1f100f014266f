"""The lease of a link: its form in the record, changes by a person, and its problems."""

from __future__ import annotations

from typing import Any

import pytest

from dr.sites.core.lease_sentences import lease_problem, lease_sentence
from dr.sites.core.link_checks import arbiter_problems, lease_problems
from dr.sites.core.sync_policies import leasing
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkLease


def link(**fields: Any) -> LinkRecord:
    return LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1, revision=3, **fields)


def test_sites_share_a_lease_only_with_the_same_arbiter() -> None:
    assert arbiter_problems({"a": "x", "b": "x"}) == []
    assert arbiter_problems({"a": "x", "b": "y"}) == ["sites a and b have different arbiters: they need the same one"]
    (problem,) = arbiter_problems({"a": "x", "b": ""})
    assert problem.startswith("site b reaches no arbiter: set antipode.arbiter.connect at its brokers")


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (link(), ""),
        (link(lease_ms=1_000, failover_mode="automatic"), ""),
        (link(lease_ms=999), "lease_ms 999: accepted are 0 (no lease) and 1000 to 600000"),
        (link(lease_ms=1_000, failover_mode="often"), "failover mode 'often': accepted are '', 'observe', 'automatic'"),
        (
            link(failover_mode="automatic"),
            "failover mode 'automatic' needs a lease: without one the old site may still take writes",
        ),
        (
            link(lease_ms=1_000, failover_lag_ms_max=-1),
            "failover_lag_ms_max -1: accepted is 0 (no bound) or more",
        ),
    ],
)
def test_a_lease_that_cannot_be_kept_is_refused(record: LinkRecord, problem: str) -> None:
    assert lease_problems(record) == ([problem] if problem else [])


def test_a_first_lease_observes_and_a_link_without_one_does_nothing_by_itself() -> None:
    first = leasing(link(), lease_ms=2_000, now_ms=7)
    assert (first.lease_ms, first.failover_mode, first.revision, first.updated_at_ms) == (2_000, "observe", 4, 7)
    automatic = leasing(first, mode="automatic", lag_records_max=10, now_ms=8)
    assert (automatic.failover_mode, automatic.failover_lag_records_max, automatic.revision) == ("automatic", 10, 5)
    gone = leasing(automatic, lease_ms=0, now_ms=9)
    assert (gone.lease_ms, gone.failover_mode) == (0, "")
    assert leasing(automatic, mode="automatic", now_ms=9) is automatic


def test_the_record_says_what_happens_when_the_active_site_is_lost() -> None:
    assert "a disconnected site continues to take writes" in lease_sentence(link())
    bounded = link(lease_ms=2_000, failover_mode="automatic", failover_lag_records_max=5, failover_lag_ms_max=9)
    assert lease_sentence(bounded) == (
        "a writes under a lease of 2000 ms; when it is lost, b fails over by itself unless it lacks more than 5 records or 9 ms"
    )


@pytest.mark.parametrize(
    ("site", "lease", "problem"),
    [
        ("a", LinkLease(is_arbiter_reachable=True, permit_from="arbiter", permit_left_ms=5), ""),
        ("a", LinkLease(problem="x"), "a broker of a takes no writes: x"),
        (
            "a",
            LinkLease(permit_from="standby", permit_left_ms=5),
            "a does not reach the arbiter; a writes by the vow of its standby: no site can be promoted",
        ),
        ("b", LinkLease(), "b does not reach the arbiter: no site can be promoted"),
        ("b", LinkLease(is_arbiter_reachable=True), ""),
    ],
)
def test_status_names_a_lease_that_needs_a_person(site: str, lease: LinkLease, problem: str) -> None:
    assert lease_problem(link(lease_ms=2_000), site, lease) == problem
