"""The compacted logs that are worth a pass of the cleaner, and their order."""

from broker.log.core.cleaning_choice import CleaningRules, Dirtiness, worth_cleaning

RULES = CleaningRules(dirty_ratio_min=0.5, lag_ms_max=1000)
NOW_MS = 10_000


def chosen(*found):
    named = [(str(position), dirtiness, RULES) for position, dirtiness in enumerate(found)]
    return worth_cleaning(named, NOW_MS)


def test_a_log_is_cleaned_when_more_than_the_ratio_is_dirty():
    assert chosen(Dirtiness(50, 50, NOW_MS), Dirtiness(49, 51, NOW_MS), Dirtiness(100, 0, -1)) == ["1"]


def test_the_dirtiest_comes_first():
    assert chosen(Dirtiness(40, 60, NOW_MS), Dirtiness(0, 10, NOW_MS), Dirtiness(20, 80, NOW_MS)) == ["1", "2", "0"]


def test_the_overdue_comes_before_all_others_however_little_of_it_is_dirty():
    assert chosen(Dirtiness(0, 100, NOW_MS), Dirtiness(1000, 1, NOW_MS - 1001)) == ["1", "0"]
    assert chosen(Dirtiness(1000, 1, NOW_MS - 1000)) == []


def test_a_log_whose_oldest_time_is_unknown_is_never_overdue():
    assert chosen(Dirtiness(1000, 1, -1)) == []
