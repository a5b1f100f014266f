"""The driver of a failover run: its process while it reports, else the one that the link's record
names.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dr.failover.core.recorded_run import RUNNING, RunRecord, driver
from wire.control.cluster_pb2 import LinkPhase, LinkRecord

RUN = RunRecord(
    link="a-b",
    to_site="b",
    who="ops@host",
    command="antipode failover a-b --to b",
    began_at_ms=1_000,
    updated_at_ms=2_000,
    outcome=RUNNING,
    reason="drain",
    epoch=1,
)


def record(active: str, *, epoch: int, is_fenced: bool = False) -> LinkRecord:
    phase = LinkPhase.FENCED if is_fenced else LinkPhase.MIRRORING
    return LinkRecord(name="a-b", epoch=epoch, source_site="a", target_site="b", active_site=active, phase=phase)


def test_a_run_that_has_ended_has_no_driver() -> None:
    for outcome in ("done", "refused", "aborted"):
        ended = replace(RUN, outcome=outcome)
        assert driver(ended, is_silent=True, has_later=False, record=record("a", epoch=1), is_confirmed=True) == ""


def test_a_process_that_reports_drives_its_run_whatever_the_sites_have() -> None:
    for found in (None, record("a", epoch=1, is_fenced=True), record("b", epoch=2)):
        assert driver(RUN, is_silent=False, has_later=True, record=found, is_confirmed=False) == "its process"


@pytest.mark.parametrize(
    ("has_later", "found", "is_confirmed", "expected"),
    [
        (True, record("b", epoch=2), True, "a later run"),
        (False, None, False, "no process: no site that answers has the link"),
        (False, record("b", epoch=2), True, "the agents of b have finished it: epoch 2 is confirmed"),
        (
            False,
            record("b", epoch=2),
            False,
            "the agents of b: epoch 2 is not confirmed yet, run it again if that lasts",
        ),
        (
            False,
            record("a", epoch=1, is_fenced=True),
            True,
            "no process: writes at a are stopped, run it again or abort it",
        ),
        (False, record("a", epoch=1), True, "no process: a is active in epoch 1"),
    ],
)
def test_of_a_silent_run_the_link_s_record_says_who_drives_it(
    has_later: bool, found: LinkRecord | None, is_confirmed: bool, expected: str
) -> None:
    assert driver(RUN, is_silent=True, has_later=has_later, record=found, is_confirmed=is_confirmed) == expected
