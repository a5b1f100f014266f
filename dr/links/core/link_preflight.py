"""The checks before a link is created, in order: each one passes, refuses or warns.

`dr/sites/core/link_checks.py` has the rules of records and pairs of sites; this module adds the
results of the target's controller, which validated the creation of the source's topics without
creating them. Pure: `dr/links/link_preflight.py` asks.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from dr.proof.core.verification import LinkVerification
from dr.sites.core.quarantine_sentences import quarantine_problem, quarantine_sentence
from runtime.times import iso_time
from wire.control.broker_pb2 import QuarantineUse
from wire.control.cluster_pb2 import LinkRecord
from wire.control.controller_pb2 import NewTopic, TopicResult
from wire.control.mirror_pb2 import DescribeMirrorReply
from wire.control.site_pb2 import LinkRehearsal, SurveyedTopic, SurveyLinkReply
from wire.protocol.ids import SITE_DEFAULT

PROBE: Final = "antipode-link-check"
"""The name of a topic that is only validated, if the source has no topics yet: the answer shows the
target's replication factor.
"""
NAMED_MAX: Final = 5
"""Maximum number of topics named in one check; further ones are counted."""
PROOF_COUNTS_MS: Final = 900_000
"""Maximum age (ms) of the last comparison of the sites that still counts; a huge link is compared
every ten minutes.
"""
REHEARSAL_COUNTS_HOURS: Final = 30 * 24
"""After this time, another rehearsal is recommended."""
HOURS_SHOWN_MAX: Final = 72
MIN_INSYNC: Final = "min.insync.replicas"


class Outcome(enum.Enum):
    """The outcome of one check. A REFUSED check prevents the link."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


class LinkCheck(Struct, frozen=True, kw_only=True):
    """One check with its outcome in a sentence."""

    check: str
    outcome: Outcome
    detail: str


def judged(check: str, problems: Sequence[str], *, otherwise: str) -> list[LinkCheck]:
    """A refusal for each problem; without problems, a check that passes."""
    if not problems:
        return [LinkCheck(check=check, outcome=Outcome.OK, detail=otherwise)]
    return [LinkCheck(check=check, outcome=Outcome.REFUSED, detail=problem) for problem in problems]


def warned(check: str, warnings: Sequence[str], *, otherwise: str) -> list[LinkCheck]:
    """A warning for each sentence; without one, a check that passes."""
    if not warnings:
        return [LinkCheck(check=check, outcome=Outcome.OK, detail=otherwise)]
    return [LinkCheck(check=check, outcome=Outcome.WARNING, detail=warning) for warning in warnings]


def refusals(checks: Iterable[LinkCheck]) -> list[str]:
    """The reasons why the link cannot be created."""
    return [check.detail for check in checks if check.outcome is Outcome.REFUSED]


def version_check(releases: Mapping[str, str | None]) -> LinkCheck:
    """Check the releases of both sites; None if the site does not report one."""
    silent = [site for site, release in releases.items() if release is None]
    if silent:
        detail = (
            f"site {' and '.join(silent)} does not report its release, so it is older than this command and topics cannot be checked. "
            "Update its brokers first"
        )
        return LinkCheck(check="versions", outcome=Outcome.WARNING, detail=detail)
    reported = " and ".join(f"{site} runs {release}" for site, release in releases.items())
    if len(set(releases.values())) == 1:
        return LinkCheck(check="versions", outcome=Outcome.OK, detail=reported)
    detail = (
        f"{reported}: the older one may not support features of the newer one's topics. Update brokers before mirrors"
    )
    return LinkCheck(check="versions", outcome=Outcome.WARNING, detail=detail)


def wanted_topics(source: SurveyLinkReply, claim: LinkRecord | None = None) -> list[NewTopic]:
    """The topics as a mirror would request them, or the probe if there are none. `claim` is the
    link, if it already exists.
    """
    if not source.topics:
        return [NewTopic(name=PROBE, partition_count=1, replication_factor=SITE_DEFAULT)]
    link, epoch = ("", 0) if claim is None else (claim.name, claim.epoch)
    return [
        NewTopic(
            name=topic.name,
            partition_count=topic.partition_count,
            replication_factor=SITE_DEFAULT,
            configs=dict(topic.configs),
            topic_id=topic.topic_id,
            link=link,
            link_epoch=epoch,
        )
        for topic in source.topics
    ]


def copy_checks(source: SurveyLinkReply, results: Sequence[TopicResult], *, target: str, live: int) -> list[LinkCheck]:
    """Check the target controller's results for the topics; `live` is the number of its live
    brokers.
    """
    said = {result.name: result for result in results}
    return [
        *_replication_checks(results, target=target, live=live),
        *_topic_checks(source, said, target=target),
        *_insync_checks(source, said, target=target),
    ]


def unasked(problem: str, *, target: str) -> list[LinkCheck]:
    """The check when the target's controller did not answer."""
    detail = f"the controller of {target} could not validate the topics: {problem}"
    return [LinkCheck(check="topics", outcome=Outcome.WARNING, detail=detail)]


def _replication_checks(results: Sequence[TopicResult], *, target: str, live: int) -> list[LinkCheck]:
    impossible = [result for result in results if result.error_code == ErrorCode.invalid_replication_factor]
    if impossible:
        detail = (
            f"default.replication.factor of {target} cannot be used: {impossible[0].error_message} Accepted is 1 to {live}, the number of "
            "live brokers: start more of them, or configure a smaller value"
        )
        return [LinkCheck(check="replication factor", outcome=Outcome.REFUSED, detail=detail)]
    factors = sorted({result.replication_factor for result in results if not result.error_code})
    if not factors:
        return []  # The controller returns no configs of existing topics.
    detail = f"{', '.join(map(str, factors))} at {target}, {live} brokers are alive there"
    return [LinkCheck(check="replication factor", outcome=Outcome.OK, detail=detail)]


def _topic_checks(source: SurveyLinkReply, said: Mapping[str, TopicResult], *, target: str) -> list[LinkCheck]:
    passed_over = (ErrorCode.none, ErrorCode.topic_already_exists, ErrorCode.invalid_replication_factor)
    problems = [
        f"topic {topic.name} ({topic.partition_count} partitions) cannot be created at {target}: {said[topic.name].error_message}"
        for topic in source.topics
        if topic.name in said and said[topic.name].error_code not in passed_over
    ]
    shown = problems[:NAMED_MAX]
    if len(problems) > NAMED_MAX:
        shown.append(f"{len(problems) - NAMED_MAX} more topics have the same problem")
    number = f"{len(source.topics)} topics of {source.site}"
    if source.topic_count > len(source.topics):
        number = f"the first {len(source.topics)} of {source.topic_count} topics of {source.site}"
    return judged("topics", shown, otherwise=f"{number} can be created at {target}")


def _insync_checks(source: SurveyLinkReply, said: Mapping[str, TopicResult], *, target: str) -> list[LinkCheck]:
    short = [
        f"{topic.name} ({topic.configs[MIN_INSYNC]})"
        for topic in source.topics
        if topic.name in said and _wants_more(topic, said[topic.name].replication_factor)
    ]
    if not short:
        return []
    factor = max(said[topic.name].replication_factor for topic in source.topics if topic.name in said)
    more = f" and {len(short) - NAMED_MAX} more" if len(short) > NAMED_MAX else ""
    detail = (
        f"{MIN_INSYNC} of {', '.join(short[:NAMED_MAX])}{more}: no write would be acknowledged for copies at {target}, which have {factor} "
        f"replicas (its default.replication.factor). Accepted is 1 to {factor}: raise default.replication.factor there, or name "
        f"{MIN_INSYNC} in the mirror's config.properties.exclude"
    )
    return [LinkCheck(check="in-sync replicas", outcome=Outcome.WARNING, detail=detail)]


def _wants_more(topic: SurveyedTopic, factor: int) -> bool:
    wanted = topic.configs.get(MIN_INSYNC, "")
    return factor > 0 and wanted.isdecimal() and int(wanted) > factor


NO_COPIES: Final = "nothing is copied before a mirror runs for the link (`antipode mirror`)"


def mirror_check(link: str, *, address: str, answer: DescribeMirrorReply | str) -> LinkCheck:
    """Check the answer of the link's mirror, or the reason why it did not answer; an empty
    `address` is unknown.
    """
    if not address:
        detail = f"{NO_COPIES}; give --mirror host:port to check it"
    elif isinstance(answer, str):
        detail = f"{NO_COPIES}; none answers at {address}: {answer}"
    elif answer.link != link:
        detail = f"{NO_COPIES}; the one at {address} is of link {answer.link}"
    else:
        return LinkCheck(check="mirror", outcome=Outcome.OK, detail=f"runs at {address}")
    return LinkCheck(check="mirror", outcome=Outcome.WARNING, detail=detail)


def mirror_seen_check(sentence: str, *, is_recent: bool, problems: Sequence[str] = ()) -> LinkCheck:
    """For an existing link, check when its mirror last reported to the standby that everything is
    carried, and which groups its daemons cannot carry.
    """
    outcome = Outcome.OK if is_recent and not problems else Outcome.WARNING
    return LinkCheck(check="mirror", outcome=outcome, detail="; ".join((f"{sentence} at the standby", *problems)))


def proof_check(proof: LinkVerification | None, *, epoch: int, active_site: str, now_ms: int) -> LinkCheck:
    """For an existing link, check until when the active site's agents have proven both sites
    equal.
    """
    detail = ""
    if proof is not None and proof.epoch == epoch and proof.verified_until_ms == 0 and proof.not_covered:
        detail = f"nothing is proven: the comparison leaves out {proof.not_covered}"
    elif proof is None or proof.epoch != epoch or proof.verified_until_ms == 0:
        detail = f"{active_site} has no proof yet in epoch {epoch}: its agents compare every few seconds"
    elif now_ms - proof.compared_at_ms > PROOF_COUNTS_MS:
        detail = f"the last comparison by {active_site} is {(now_ms - proof.compared_at_ms) // 1000} s old"
    if proof is not None and proof.epoch == epoch and proof.reason:
        detail = (
            f"the sites differ in {proof.differences} ranges of offsets, first {proof.reason}"
            if proof.differences
            else f"some parts could not be compared: {proof.reason}"
        )
    if detail or proof is None:
        return LinkCheck(check="proof", outcome=Outcome.WARNING, detail=detail)
    equal = f"both sites are proven equal until {iso_time(proof.verified_until_ms)}"
    if proof.not_covered:
        equal += f", apart from {proof.not_covered}"
    return LinkCheck(check="proof", outcome=Outcome.OK, detail=equal)


def quarantine_check(uses: Iterable[tuple[str, QuarantineUse]]) -> LinkCheck:
    """For an existing link, check whether quarantined records of its sites are about to expire, and
    whether there is room for more. `uses` has the brokers that have entries, with their sites.
    """
    known = list(uses)
    problems = [problem for site, use in known if (problem := quarantine_problem(site, use))]
    if problems:
        return LinkCheck(check="quarantine", outcome=Outcome.WARNING, detail="; ".join(problems))
    sentences = [quarantine_sentence(site, use) for site, use in known]
    return LinkCheck(check="quarantine", outcome=Outcome.OK, detail="; ".join(sentences) or "empty at both sites")


def rehearsal_check(rehearsal: LinkRehearsal | None, *, standby: str, now_ms: int) -> LinkCheck:
    """For an existing link, check how long ago a failover was rehearsed on clones of the standby's
    logs.
    """
    if rehearsal is None:
        advice = f"no failover to {standby} was rehearsed yet: run antipode rehearse, mirroring continues meanwhile"
        return LinkCheck(check="rehearsal", outcome=Outcome.WARNING, detail=advice)
    hours = max(0, now_ms - rehearsal.ended_at_ms) // 3_600_000
    age = f"{hours} hours ago" if hours < HOURS_SHOWN_MAX else f"{hours // 24} days ago"
    age = age if hours else "within the last hour"
    when = f"the last rehearsal at {standby} ended {age} ({iso_time(rehearsal.ended_at_ms)})"
    if not rehearsal.is_passed:
        return LinkCheck(check="rehearsal", outcome=Outcome.WARNING, detail=f"{when} and failed: {rehearsal.reason}")
    outcome = Outcome.OK if hours < REHEARSAL_COUNTS_HOURS else Outcome.WARNING
    promoted = f"{rehearsal.partitions} partitions were promoted in {rehearsal.promotion_ms} ms"
    return LinkCheck(check="rehearsal", outcome=outcome, detail=f"{when}; {promoted}")


def resting_mirror_check(sentence: str, *, is_recent: bool, active_site: str) -> LinkCheck:
    """For an existing link, check whether an idle mirror waits at the active site, to protect the
    other site after a failover.
    """
    if is_recent:
        return LinkCheck(check="mirror back", outcome=Outcome.OK, detail=f"idle at {active_site}: {sentence}")
    advice = f"no idle mirror waits at {active_site} ({sentence}): after a failover nothing is mirrored back until one is started"
    return LinkCheck(check="mirror back", outcome=Outcome.WARNING, detail=advice)
