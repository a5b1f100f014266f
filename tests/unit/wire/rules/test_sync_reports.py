"""What the words of several daemons on groups' offsets mean for their link."""

from __future__ import annotations

import pytest

from wire.rules.sync_reports import (
    ALL_SLOTS,
    MIRROR_SLOTS,
    NEVER,
    PROBLEMS_TOLD,
    REASON_LENGTH_MAX,
    WORD_COUNTS_MS,
    GroupWord,
    HeardWord,
    decode_word,
    encode_word,
    link_words,
)

HALF, REST = frozenset(range(120)), frozenset(range(120, MIRROR_SLOTS))
REFUSED = {"billing": "refused"}
LONG_AGO_MS = WORD_COUNTS_MS + 1


def ages(*, half: int, rest: int) -> list[int]:
    return [half] * 120 + [rest] * 120


def failing(*words: HeardWord) -> list[str]:
    return [word.daemon for word in link_words([ages(half=1, rest=1)], words).failing]


def test_a_word_arrives_as_it_was_said() -> None:
    word = GroupWord(daemon="m1:9391", slots=HALF, synced_at_ms=7, synced_ms_ago=50, problems=REFUSED)
    assert decode_word(encode_word(word), synced_at_ms=7) == word


def test_mirrors_of_earlier_releases_speak_of_the_whole_link() -> None:
    assert decode_word(None, synced_at_ms=7) == decode_word("", synced_at_ms=7) == GroupWord(synced_at_ms=7)


def test_a_word_is_short_however_much_fails() -> None:
    word = GroupWord(problems={f"group {number:04}": "x" * 1000 for number in range(1000)})
    told = decode_word(encode_word(word), synced_at_ms=0).problems
    assert len(told) == PROBLEMS_TOLD
    assert {len(reason) for reason in told.values()} == {REASON_LENGTH_MAX}


@pytest.mark.parametrize("text", ["soon", "[]", "{}", '{"daemon": "m", "slots": 5, "problems": {}}'])
def test_what_is_no_word_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_word(text, synced_at_ms=0)


def test_a_link_is_as_old_as_its_oldest_part_and_each_part_as_young_as_any_broker_knows() -> None:
    assert link_words([ages(half=50, rest=10), ages(half=30, rest=90)], ()).synced_ms_ago == 30
    assert link_words([ages(half=50, rest=NEVER), ages(half=NEVER, rest=0)], ()).synced_ms_ago == 50
    assert link_words([ages(half=50, rest=NEVER)], ()).synced_ms_ago is None
    assert link_words([], ()).synced_ms_ago is None


def test_who_fails_is_shown_while_another_daemon_says_that_all_is_well() -> None:
    well = HeardWord("m2", REST, {}, 10)
    assert failing(HeardWord("m1", HALF, REFUSED, 500), well) == ["m1"]
    assert failing(HeardWord("m1", HALF, REFUSED, LONG_AGO_MS), well) == ["m1"]


def test_who_healed_does_not_fail_whichever_broker_heard_of_it() -> None:
    assert failing(HeardWord("m1", HALF, REFUSED, 500), HeardWord("m1", HALF, {}, 10)) == []


def test_a_daemon_that_is_gone_fails_until_others_have_told_of_all_its_parts() -> None:
    gone = HeardWord("m1", ALL_SLOTS, REFUSED, LONG_AGO_MS)
    assert failing(gone, HeardWord("m2", HALF, {}, 10)) == ["m1"]
    assert failing(gone, HeardWord("m2", HALF, {}, 10), HeardWord("m3", REST, {}, 20)) == []


def test_of_two_daemons_that_each_have_all_neither_hides_the_other() -> None:
    assert failing(HeardWord("m1", ALL_SLOTS, REFUSED, 500), HeardWord("m2", ALL_SLOTS, {}, 10)) == ["m1"]
