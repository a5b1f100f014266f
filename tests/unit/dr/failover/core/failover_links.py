"""Model links before a failover, with a standby that lacks the newest records or commits, and the
check of a promoted standby.
"""

from __future__ import annotations

from tests.unit.dr.core.link_model import ModelLink


def link_with_records(*, written: int, mirrored: int) -> ModelLink:
    link = ModelLink()
    for number in range(written):
        assert link.a.write(f"v{number}")
        if number + 1 == mirrored:
            link.mirror()
    return link


def link_with_a_late_commit(offset: int) -> ModelLink:
    """All records are mirrored, and so is a commit of 7; another one has just been acknowledged."""
    link = link_with_records(written=12, mirrored=12)
    assert link.a.commit(7)
    link.carry_groups()
    assert link.a.commit(offset)
    return link


def assert_promoted(link: ModelLink) -> None:
    assert link.b.write("after")
    assert not link.a.write("stale")
    assert link.b.record.epoch == 2
    assert link.b.accounts[2].to_site == "b"
