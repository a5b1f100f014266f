"""Entries of the quarantine expire only after a warning, and a partition's bound is warned of."""

from __future__ import annotations

from broker.replication.core.quarantine_retention import (
    KEPT_FOREVER,
    KeptEntry,
    QuarantineRetention,
    QuarantineUse,
    Upkeep,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BORN_MS = 1_700_000_000_000
OLD, NEW = KeptEntry("old", "orders-0", 60, BORN_MS), KeptEntry("new", "orders-1", 10, BORN_MS + HOUR_MS)


def look(
    retention: QuarantineRetention,
    at_ms: int,
    *entries: KeptEntry,
    retention_ms: int = 10 * DAY_MS,
    bytes_max: int = 100,
) -> Upkeep:
    """A look this long after the first entry was made."""
    return retention.look(
        entries or (NEW, OLD),
        retention_ms=retention_ms,
        bytes_max=bytes_max,
        now_ms=BORN_MS + at_ms,
        monotonic_ms=float(at_ms),
    )


def test_without_a_retention_nothing_expires() -> None:
    found = look(QuarantineRetention(), 1_000 * DAY_MS, retention_ms=KEPT_FOREVER)
    assert (found.expiring, found.expired) == ((), ())
    assert (found.use.entries, found.use.size_bytes, found.use.first_expiring) == (2, 70, "")
    assert found.use.expires_in_ms(BORN_MS) is None


def test_the_first_expiry_is_known_from_the_beginning() -> None:
    use = look(QuarantineRetention(), DAY_MS).use
    assert (use.first_expiring, use.expires_in_ms(BORN_MS + DAY_MS)) == ("old", 9 * DAY_MS)
    assert use.expires_in_ms(BORN_MS + 20 * DAY_MS) == 0
    assert not use.is_expiring


def test_an_entry_is_deleted_a_day_after_the_warning_about_it() -> None:
    retention = QuarantineRetention()
    assert look(retention, 9 * DAY_MS - 1).expiring == ()
    warned = look(retention, 9 * DAY_MS)
    assert warned.expiring == ((OLD, BORN_MS + 10 * DAY_MS),)
    assert warned.use.is_expiring
    again = look(retention, 9 * DAY_MS + HOUR_MS)
    assert again.expiring == ((NEW, NEW.at_ms + 10 * DAY_MS),), "one warning for each entry"
    assert look(retention, 10 * DAY_MS - 1).expired == ()
    gone = look(retention, 10 * DAY_MS)
    assert gone.expired == (OLD,)
    assert (gone.use.entries, gone.use.first_expiring) == (1, "new")


def test_an_entry_that_is_overdue_at_the_start_is_announced_first() -> None:
    """The broker was down for the whole retention, or the retention was made shorter."""
    retention = QuarantineRetention()
    found = look(retention, 30 * DAY_MS, OLD)
    assert found.expired == ()
    assert found.expiring == ((OLD, BORN_MS + 31 * DAY_MS),)
    assert look(retention, 31 * DAY_MS - 1, OLD).expired == ()
    assert look(retention, 31 * DAY_MS, OLD).expired == (OLD,)


def test_a_file_that_grows_is_a_new_entry() -> None:
    retention = QuarantineRetention()
    look(retention, 30 * DAY_MS, OLD)
    grown = OLD._replace(size_bytes=61, at_ms=BORN_MS + 30 * DAY_MS)
    found = look(retention, 31 * DAY_MS, grown)
    assert (found.expired, found.expiring) == ((), ())


def test_a_partition_that_is_almost_full_is_named_once_until_it_has_room_again() -> None:
    retention = QuarantineRetention()
    more = OLD._replace(name="more", size_bytes=20)
    assert look(retention, 0).filling == ()
    found = look(retention, 0, OLD, more, NEW)
    assert found.filling == (("orders-0", 80.0),)
    assert (found.use.fullest_place, found.use.fullest_percent) == ("orders-0", 80.0)
    assert look(retention, 0, OLD, more, NEW).filling == ()
    assert look(retention, 0, OLD).filling == ()
    assert look(retention, 0, OLD, more).filling == (("orders-0", 80.0),)


def test_an_empty_quarantine_and_a_bound_of_zero() -> None:
    retention = QuarantineRetention()
    empty = retention.look((), retention_ms=DAY_MS, bytes_max=0, now_ms=BORN_MS, monotonic_ms=0.0)
    assert empty == Upkeep(use=QuarantineUse())
