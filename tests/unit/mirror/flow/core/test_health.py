"""The state of a whole mirror: from its partitions, or from its link if it has none."""

from __future__ import annotations

import pytest

from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.health import CARRIES_NOTHING, HEALTHY_STATES, IDLE, WAITING, Health, assess, not_opened
from mirror.link.core.link_roles import LinkRole

MIRRORING, FAULTED = (FlowState.MIRRORING, ""), (FlowState.FAULTED, "histories differ")
FILTERS = "nothing is mirrored: the filters carry none of the 3 topics"


def assessed(
    *flows: tuple[FlowState, str],
    outage: tuple[FlowState, str] | None = None,
    role: LinkRole = LinkRole.MIRRORING,
    nothing_carried: str = "",
    is_shared: bool = False,
) -> Health:
    return assess(flows, outage=outage, role=role, nothing_carried=nothing_carried, is_shared=is_shared)


def test_a_mirror_that_carries_nothing_is_not_mirroring() -> None:
    assert assessed()[::2] == (IDLE, False)
    assert "other" not in assessed().reason
    assert "daemons that share" in assessed(is_shared=True).reason
    assert assessed(nothing_carried=FILTERS) == Health(CARRIES_NOTHING, FILTERS, is_serving=False)


def test_a_mirror_that_waits_for_another_daemon_says_so_and_does_not_serve() -> None:
    waiting = assess(
        [], outage=None, role=LinkRole.MIRRORING, nothing_carried="", is_shared=False, waiting_for="daemon h:1 carries"
    )
    assert waiting == Health(WAITING, "daemon h:1 carries", is_serving=False)
    assert waiting.state in HEALTHY_STATES


def test_a_mirror_that_has_not_found_its_link_does_not_serve() -> None:
    assert not_opened("no agent answers") == Health("PREPARING", "no agent answers", is_serving=False)


def test_a_mirror_whose_partitions_are_all_faulted_does_not_serve() -> None:
    assert assessed(FAULTED, FAULTED) == Health("FAULTED", "histories differ", is_serving=False)
    assert not assessed(FAULTED, (FlowState.GAP, ""), (FlowState.PREPARING, "")).is_serving


def test_one_faulted_partition_is_reported_and_the_others_are_served() -> None:
    assert assessed(MIRRORING, FAULTED, MIRRORING) == Health("FAULTED", "histories differ", is_serving=True)


@pytest.mark.parametrize("state", [FlowState.MIRRORING, FlowState.PROMOTING, FlowState.PROMOTED])
def test_partitions_that_do_what_the_link_asks_serve(state: FlowState) -> None:
    assert assessed((state, "")) == Health(state.value, "", is_serving=True)


def test_a_site_that_does_not_answer_is_the_state_and_the_reason() -> None:
    outage = (FlowState.SOURCE_UNAVAILABLE, "source a does not answer")
    assert assessed(outage=outage) == Health("SOURCE_UNAVAILABLE", "source a does not answer", is_serving=False)
    assert assessed(MIRRORING, outage=outage).state == "SOURCE_UNAVAILABLE"


def test_without_partitions_the_role_of_the_link_says_how_it_is() -> None:
    assert assessed(role=LinkRole.TURNED)[::2] == ("PROMOTED", True)
    assert assessed(role=LinkRole.GONE)[::2] == ("PAUSED", False)


def test_filters_that_carry_nothing_do_not_hide_what_is_worse() -> None:
    assert assessed((FlowState.RESET, "gone at the source"), nothing_carried=FILTERS).state == "RESET"
