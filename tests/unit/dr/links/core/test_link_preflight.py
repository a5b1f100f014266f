"""The checks before a link is created, and their results."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from dr.links.core.link_preflight import (
    PROBE,
    LinkCheck,
    Outcome,
    copy_checks,
    judged,
    mirror_check,
    mirror_seen_check,
    proof_check,
    refusals,
    resting_mirror_check,
    unasked,
    version_check,
    wanted_topics,
)
from dr.proof.core.verification import LinkVerification
from wire.control.cluster_pb2 import LinkRecord
from wire.control.controller_pb2 import TopicResult
from wire.control.mirror_pb2 import DescribeMirrorReply
from wire.control.site_pb2 import SurveyedTopic, SurveyLinkReply

OK, WARNING, REFUSED = Outcome.OK, Outcome.WARNING, Outcome.REFUSED
RF = ErrorCode.invalid_replication_factor


def survey(*topics: SurveyedTopic, more: int = 0) -> SurveyLinkReply:
    return SurveyLinkReply(site="a", version="1", topics=topics, topic_count=len(topics) + more)


def topic(name: str = "orders", **configs: str) -> SurveyedTopic:
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    return SurveyedTopic(name=name, topic_id=bytes(16), partition_count=4, configs=dotted)


def answer(
    name: str = "orders", *, factor: int = 1, error: ErrorCode = ErrorCode.none, message: str = ""
) -> TopicResult:
    return TopicResult(name=name, replication_factor=factor, error_code=error, error_message=message)


def checked(source: SurveyLinkReply, *results: TopicResult, live: int = 3) -> dict[str, list[tuple[Outcome, str]]]:
    found: dict[str, list[tuple[Outcome, str]]] = {}
    for check in copy_checks(source, results, target="b", live=live):
        found.setdefault(check.check, []).append((check.outcome, check.detail))
    return found


def test_a_replication_factor_above_the_brokers_that_live_is_refused_with_what_is_accepted() -> None:
    message = "Replication factor: 3 larger than available brokers: 2."
    found = checked(survey(topic()), answer(error=RF, factor=0, message=message), live=2)
    ((outcome, detail),) = found["replication factor"]
    assert outcome is REFUSED
    assert message in detail
    assert "default.replication.factor of b" in detail
    assert "Accepted is 1 to 2" in detail
    assert [one for one, _ in found["topics"]] == [OK]


def test_topics_that_the_target_takes_are_well_and_counted() -> None:
    found = checked(survey(topic(), topic("bills"), more=7), answer(), answer("bills"))
    assert found == {
        "replication factor": [(OK, "1 at b, 3 brokers are alive there")],
        "topics": [(OK, "the first 2 of 9 topics of a can be created at b")],
    }


def test_topics_that_are_there_already_are_well() -> None:
    found = checked(survey(topic()), answer(error=ErrorCode.topic_already_exists, factor=0))
    assert found == {"topics": [(OK, "1 topics of a can be created at b")]}


def test_topics_that_the_target_would_refuse_are_named_with_its_words_and_the_rest_is_counted() -> None:
    names = [f"t{number}" for number in range(8)]
    message = "4 new partitions; accepted are 1 to 2 in one request"
    refused = [answer(name, error=ErrorCode.invalid_partitions, message=message) for name in names]
    found = checked(survey(*map(topic, names)), *refused)["topics"]
    assert [outcome for outcome, _ in found] == [REFUSED] * 6
    assert found[0][1] == f"topic t0 (4 partitions) cannot be created at b: {message}"
    assert found[-1][1] == "3 more topics have the same problem"


def test_more_in_sync_replicas_than_copies_will_have_are_a_warning_with_what_is_accepted() -> None:
    found = checked(survey(topic(min_insync_replicas="2"), topic("bills")), answer(), answer("bills"))
    ((outcome, detail),) = found["in-sync replicas"]
    assert outcome is WARNING
    assert "min.insync.replicas of orders (2)" in detail
    assert "Accepted is 1 to 1" in detail
    assert "in-sync replicas" not in checked(survey(topic(min_insync_replicas="2")), answer(factor=2))


@pytest.mark.parametrize(
    ("releases", "outcome", "said"),
    [
        ({"a": "1.0", "b": "1.0"}, OK, "a runs 1.0 and b runs 1.0"),
        ({"a": "1.1", "b": "1.0"}, WARNING, "a runs 1.1 and b runs 1.0"),
        ({"a": "1.1", "b": None}, WARNING, "site b does not report its release"),
    ],
)
def test_different_or_unknown_releases_are_a_warning(
    releases: dict[str, str | None], outcome: Outcome, said: str
) -> None:
    check = version_check(releases)
    assert check.outcome is outcome
    assert said in check.detail


@pytest.mark.parametrize(
    ("address", "reply", "outcome", "said"),
    [
        ("", "", WARNING, "give --mirror host:port"),
        ("x:1", "UNAVAILABLE: refused", WARNING, "none answers at x:1: UNAVAILABLE: refused"),
        ("x:1", DescribeMirrorReply(link="b-c"), WARNING, "the one at x:1 is of link b-c"),
        ("x:1", DescribeMirrorReply(link="a-b"), OK, "runs at x:1"),
    ],
)
def test_a_link_without_its_mirror_is_a_warning(
    address: str, reply: DescribeMirrorReply | str, outcome: Outcome, said: str
) -> None:
    check = mirror_check("a-b", address=address, answer=reply)
    assert check.outcome is outcome
    assert said in check.detail


def test_missing_answers_are_a_warning() -> None:
    assert mirror_seen_check("reported 0.1 s ago", is_recent=True).outcome is OK
    assert mirror_seen_check("no report yet", is_recent=False).outcome is WARNING
    back = resting_mirror_check("no report yet", is_recent=False, active_site="a")
    assert back.outcome is WARNING
    assert back.detail.startswith(
        "no idle mirror waits at a (no report yet): after a failover nothing is mirrored back"
    )
    assert resting_mirror_check("reported 0.1 s ago", is_recent=True, active_site="a").outcome is OK
    assert [check.outcome for check in unasked("gone", target="b")] == [WARNING]


@pytest.mark.parametrize(
    ("proof", "outcome", "detail"),
    [
        (None, WARNING, "a has no proof yet in epoch 2"),
        (LinkVerification(epoch=1, verified_until_ms=5, compared_at_ms=5), WARNING, "a has no proof yet"),
        (LinkVerification(epoch=2, compared_at_ms=5), WARNING, "a has no proof yet in epoch 2"),
        (
            LinkVerification(epoch=2, verified_until_ms=5, compared_at_ms=5),
            WARNING,
            "the last comparison by a is 1000 s old",
        ),
        (
            LinkVerification(epoch=2, verified_until_ms=5, compared_at_ms=1_000_000, differences=3, reason="missing"),
            WARNING,
            "the sites differ in 3 ranges of offsets, first missing",
        ),
        (
            LinkVerification(epoch=2, verified_until_ms=5, compared_at_ms=1_000_000, reason="t-0 is damaged"),
            WARNING,
            "some parts could not be compared: t-0 is damaged",
        ),
        (
            LinkVerification(epoch=2, verified_until_ms=999_000, compared_at_ms=1_000_000),
            OK,
            "both sites are proven equal until 1970-01-01T00:16:39",
        ),
        (
            LinkVerification(epoch=2, verified_until_ms=999_000, compared_at_ms=1_000_000, not_covered="topic c: why"),
            OK,
            "both sites are proven equal until 1970-01-01T00:16:39.000Z, apart from topic c: why",
        ),
        (
            LinkVerification(epoch=2, compared_at_ms=1_000_000, not_covered="topic c: why"),
            WARNING,
            "nothing is proven: the comparison leaves out topic c: why",
        ),
    ],
)
def test_sites_are_called_equal_only_by_a_proof_that_counts(
    proof: LinkVerification | None, outcome: Outcome, detail: str
) -> None:
    check = proof_check(proof, epoch=2, active_site="a", now_ms=1_000_005)
    assert (check.check, check.outcome) == ("proof", outcome)
    assert check.detail.startswith(detail)


def test_only_refusals_keep_a_link_from_being_made() -> None:
    checks = [*judged("record", ["no name", "no sites"], otherwise="well"), *judged("sites", [], otherwise="well")]
    checks.append(LinkCheck(check="mirror", outcome=WARNING, detail="none"))
    assert [check.outcome for check in checks] == [REFUSED, REFUSED, OK, WARNING]
    assert refusals(checks) == ["no name", "no sites"]


def test_topics_are_asked_for_as_a_mirror_would_and_a_probe_where_there_are_none() -> None:
    assert [wanted.name for wanted in wanted_topics(survey())] == [PROBE]
    (wanted,) = wanted_topics(survey(topic(retention_ms="5")))
    assert (wanted.replication_factor, wanted.partition_count, dict(wanted.configs)) == (-1, 4, {"retention.ms": "5"})
    assert (wanted.link, wanted.link_epoch) == ("", 0)
    (claimed,) = wanted_topics(survey(topic()), LinkRecord(name="a-b", epoch=3))
    assert (claimed.link, claimed.link_epoch) == ("a-b", 3)
