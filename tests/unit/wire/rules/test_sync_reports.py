"""The meaning of several daemons' reports on groups' offsets for their link."""

from __future__ import annotations

import pytest

from wire.rules.sync_reports import (
    ALL_SLOTS,
    MIRROR_SLOTS,
    NEVER,
    PROBLEMS_REPORTED,
    REASON_LENGTH_MAX,
    REPORT_COUNTS_MS,
    ReceivedReport,
    SyncReport,
    decode_report,
    encode_report,
    link_sync_reports,
)

HALF, REST = frozenset(range(120)), frozenset(range(120, MIRROR_SLOTS))
REFUSED = {"billing": "refused"}
LONG_AGO_MS = REPORT_COUNTS_MS + 1


def ages(*, half: int, rest: int) -> list[int]:
    return [half] * 120 + [rest] * 120


def failing(*words: ReceivedReport) -> list[str]:
    return [word.daemon for word in link_sync_reports([ages(half=1, rest=1)], words).failing]


def test_a_word_arrives_as_it_was_said() -> None:
    word = SyncReport(daemon="m1:9391", slots=HALF, synced_at_ms=7, synced_ms_ago=50, problems=REFUSED)
    assert decode_report(encode_report(word), synced_at_ms=7) == word


def test_mirrors_of_earlier_releases_speak_of_the_whole_link() -> None:
    assert decode_report(None, synced_at_ms=7) == decode_report("", synced_at_ms=7) == SyncReport(synced_at_ms=7)


def test_a_word_is_short_however_much_fails() -> None:
    word = SyncReport(problems={f"group {number:04}": "x" * 1000 for number in range(1000)})
    reported = decode_report(encode_report(word), synced_at_ms=0).problems
    assert len(reported) == PROBLEMS_REPORTED
    assert {len(reason) for reason in reported.values()} == {REASON_LENGTH_MAX}


@pytest.mark.parametrize("text", ["soon", "[]", "{}", '{"daemon": "m", "slots": 5, "problems": {}}'])
def test_a_text_that_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_report(text, synced_at_ms=0)


def test_a_link_is_as_old_as_its_oldest_part_and_each_part_as_young_as_any_broker_knows() -> None:
    assert link_sync_reports([ages(half=50, rest=10), ages(half=30, rest=90)], ()).synced_ms_ago == 30
    assert link_sync_reports([ages(half=50, rest=NEVER), ages(half=NEVER, rest=0)], ()).synced_ms_ago == 50
    assert link_sync_reports([ages(half=50, rest=NEVER)], ()).synced_ms_ago is None
    assert link_sync_reports([], ()).synced_ms_ago is None


def test_a_daemon_that_fails_is_shown_while_another_daemon_says_that_all_is_well() -> None:
    well = ReceivedReport("m2", REST, {}, 10)
    assert failing(ReceivedReport("m1", HALF, REFUSED, 500), well) == ["m1"]
    assert failing(ReceivedReport("m1", HALF, REFUSED, LONG_AGO_MS), well) == ["m1"]


def test_a_healed_daemon_does_not_fail_whichever_broker_has_its_report() -> None:
    assert failing(ReceivedReport("m1", HALF, REFUSED, 500), ReceivedReport("m1", HALF, {}, 10)) == []


def test_a_daemon_that_is_gone_fails_until_others_have_reported_all_its_parts() -> None:
    gone = ReceivedReport("m1", ALL_SLOTS, REFUSED, LONG_AGO_MS)
    assert failing(gone, ReceivedReport("m2", HALF, {}, 10)) == ["m1"]
    assert failing(gone, ReceivedReport("m2", HALF, {}, 10), ReceivedReport("m3", REST, {}, 20)) == []


def test_of_two_daemons_that_each_have_all_neither_hides_the_other() -> None:
    assert failing(ReceivedReport("m1", ALL_SLOTS, REFUSED, 500), ReceivedReport("m2", ALL_SLOTS, {}, 10)) == ["m1"]
