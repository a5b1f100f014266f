"""Translates offsets between two sites that are mirrored both ways under the same names, where one
link's map is not sufficient.

Each log has records that were first written there, which one link carries, and records that the
opposite link has brought, which that link skips. A consumer continues at the other site before the
first unread record of either kind: the link's map has the offsets of the former kind, the opposite
link's map the offsets of the latter.

  a. Never ahead: the consumer has read everything before the answer. The group may have read some
     of the later records, because the two sites have records in different orders.
  b. An outdated opposite map makes the answer smaller, never larger. The link's own map may be
     outdated too; the functions below say where.
"""

from __future__ import annotations

from mirror.translate.core.translation import Translation


def downstream(
    link: Translation, opposite: Translation | None, source_offset: int, *, is_link_complete: bool = True
) -> int:
    """The target offset at which a consumer of the source at `source_offset` continues.

    The link's map is complete when it has everything that was carried up to the time at which the
    opposite map was read.
    """
    if opposite is None:
        return link.downstream(source_offset)
    # Beyond the end of the opposite map there may be records that this link has brought and the
    # consumer has read.
    theirs = link.map.past_target(opposite.upstream(source_offset), below_source=source_offset)
    last = link.map.last
    is_all_read = last is None or source_offset >= last.source_end
    if is_all_read and is_link_complete:
        return theirs
    # Carried records that are not in the map are at or after its end.
    return min(theirs, link.position.target_next if is_all_read else link.downstream(source_offset))


def upstream(link: Translation, opposite: Translation | None, target_offset: int) -> int:
    """The source offset at which a consumer of the target at `target_offset` continues."""
    if opposite is None:
        return link.upstream(target_offset)
    theirs = link.map.past_source(opposite.downstream(target_offset), below_target=target_offset)
    return min(theirs, link.upstream(target_offset))
