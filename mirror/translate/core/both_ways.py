"""Offsets between two sites that are mirrored both ways under the same names, where neither link
alone has the answer.

A log then holds records that came into being there, which the one link carries over, and records
that the opposite link has brought, which the one leaves out. A consumer may stand between both
kinds. It goes on at the other site before the first record, of either kind, that it has not read:
the one link's map knows where the former are, the opposite one's where the latter are.

  a. Never ahead: whatever lies before the answer, the consumer has read. What lies behind it may be
  in part what it has read, where
     the two sites have records in another order.
  b. An opposite map that is old makes the answer smaller, never larger. The link's own map may be
  old too, where it is said to be.
"""

from __future__ import annotations

from mirror.translate.core.translation import Translation


def downstream(
    link: Translation, opposite: Translation | None, source_offset: int, *, is_link_complete: bool = True
) -> int:
    """The target offset at which a consumer of the source at `source_offset` goes on.

    The link's map is complete when it has all that was carried of what the source had after the
    opposite map was taken.
    """
    if opposite is None:
        return link.downstream(source_offset)
    # Where the opposite link ends may lie what this one has brought, and the consumer has read.
    theirs = link.map.past_target(opposite.upstream(source_offset), below_source=source_offset)
    last = link.map.last
    is_all_read = last is None or source_offset >= last.source_end
    if is_all_read and is_link_complete:
        return theirs
    # What was carried and is not in the map lies at or after the end of what is.
    return min(theirs, link.position.target_next if is_all_read else link.downstream(source_offset))


def upstream(link: Translation, opposite: Translation | None, target_offset: int) -> int:
    """The source offset at which a consumer of the target at `target_offset` goes on."""
    if opposite is None:
        return link.upstream(target_offset)
    theirs = link.map.past_source(opposite.downstream(target_offset), below_target=target_offset)
    return min(theirs, link.upstream(target_offset))
