"""The reports of site agents on access rules, and their consequences for a move."""

from __future__ import annotations

import pytest

from dr.sites.core.access_rules import AccessRules, access_lacking, access_rules, problem_key, unable_to_carry
from dr.sites.core.mirror_reports import access_synced_ms_ago, carried_access, fenced_access
from wire.control.broker_pb2 import AccessDigests, DescribeGroupOffsetsReply, SyncReport
from wire.control.site_pb2 import DescribeGroupsReply
from wire.protocol.ids import UNKNOWN
from wire.rules.access_digests import ACLS, QUOTAS, TOPIC_CONFIGS, USERS

RULES = {ACLS: "1", USERS: "2", QUOTAS: "3", TOPIC_CONFIGS: "4"}


def broker(fenced: dict[str, str] | None = None, **carried: int) -> DescribeGroupOffsetsReply:
    """A broker's reply; `carried` has each daemon with the age of its report."""
    return DescribeGroupOffsetsReply(
        fenced_access=None if fenced is None else AccessDigests(by_part=fenced),
        words=[
            SyncReport(daemon=name, received_ms_ago=ago_ms, carried_access=AccessDigests(by_part={ACLS: name}))
            for name, ago_ms in carried.items()
        ],
        access_synced_ms_ago=min(carried.values(), default=None),
    )


def test_brokers_that_disagree_about_a_part_have_no_digest_of_it() -> None:
    assert fenced_access([broker(), broker()]) is None
    same = fenced_access([broker(RULES), broker(), broker(RULES)])
    assert same is not None
    assert dict(same.by_part) == RULES
    different = fenced_access([broker(RULES), broker({**RULES, ACLS: "0"})])
    assert different is not None
    source = AccessRules(fenced=dict(different.by_part))
    for carried in ("0", "1", ""):
        assert f"changes of {ACLS} are not here" in access_lacking(
            source, AccessRules(carried={**RULES, ACLS: carried})
        )


def test_the_newest_report_of_a_mirror_counts() -> None:
    newest = carried_access([broker(m1=900), broker(m2=100, m3=500), broker()])
    assert newest is not None
    assert dict(newest.by_part) == {ACLS: "m2"}
    assert access_synced_ms_ago([broker(m1=900), broker(m2=100), broker()]) == 100
    assert carried_access([broker()]) is access_synced_ms_ago([broker()]) is None


@pytest.mark.parametrize(
    ("carried", "named"),
    [
        (dict.fromkeys(RULES, ""), "ACLs, SCRAM users, quotas, topic configs are not here"),
        ({**RULES, USERS: "0"}, "changes of SCRAM users are not here"),
        ({**RULES, QUOTAS: ""}, "changes of quotas are not here"),
        ({**RULES, TOPIC_CONFIGS: "0"}, "changes of topic configs are not here"),
        ({TOPIC_CONFIGS: "4"}, ""),
        ({TOPIC_CONFIGS: "0"}, "changes of topic configs are not here"),
        (RULES, ""),
        ({**RULES, "a part of a later release": "5"}, ""),
    ],
)
def test_each_part_that_the_mirror_carries_and_that_differs_is_named(carried: dict[str, str], named: str) -> None:
    lacking = access_lacking(AccessRules(fenced=RULES), AccessRules(carried=carried))
    assert named in lacking if named else not lacking


def test_a_source_without_an_authorizer_has_only_quotas() -> None:
    assert not access_lacking(AccessRules(fenced={QUOTAS: "3"}), AccessRules(carried={QUOTAS: "3"}))


def test_a_mirror_without_a_report_is_awaited_and_one_that_carries_nothing_is_not() -> None:
    source = AccessRules(fenced=RULES)
    assert "has not reported yet" in access_lacking(source, AccessRules(has_mirror_reported=False))
    assert not access_lacking(source, AccessRules(has_mirror_reported=True))
    assert not access_lacking(AccessRules(), AccessRules(has_mirror_reported=False)), "the source is not fenced"


def test_an_agent_s_answer_is_converted() -> None:
    failing = SyncReport(daemon="m1", problems={problem_key(USERS): "refused", "billing": "refused"})
    answer = DescribeGroupsReply(
        carried_access=AccessDigests(by_part={ACLS: "1"}), access_synced_ms_ago=40, failing=[failing]
    )
    found = access_rules(answer)
    assert found == AccessRules(
        carried={ACLS: "1"}, synced_ms_ago=40, has_mirror_reported=False, problems={USERS: "refused"}
    )
    assert unable_to_carry(found) == "the mirror cannot carry SCRAM users (refused)"
    assert not unable_to_carry(AccessRules())
    assert access_rules(DescribeGroupsReply()).synced_ms_ago == UNKNOWN
