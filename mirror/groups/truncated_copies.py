"""Moves groups of a returning site back to where their copies end, before the copies are truncated.

A group may have committed an offset at that site which the active site never got, above the end of
the history that both sites share. The sync of groups does not replace it unless the group also has
an offset at the active site. The copy grows past it with other records: when the site is active
again, the group would skip those. Called by `mirror/admin/reinstatements.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.group_ports import GroupPort
from mirror.link.link_watch import LinkView
from mirror.link.ports import Unreachable
from runtime.logs import state_change_logger
from wire.protocol.ids import TopicPartition
from wire.rules.links import carries_group
from wire.rules.truncated_groups import offsets_beyond

_state_change = state_change_logger()


async def move_groups_back(target: GroupPort, ends: Mapping[TopicPartition, int], link: LinkView) -> None:
    """Move every group of the link whose offset at the target is above the end of its partition
    back to that end. A group with members at the target keeps its offsets: its members commit
    there. Raises Unreachable unless all others have been moved; a repeated call moves nothing
    twice.
    """
    states = await target.groups()
    names = sorted(name for name in states.by_group if carries_group(link.record, name))
    found = await target.offsets_of(names)
    problems = {**states.problems, **found.problems}
    problems |= {name: "its coordinator moves" for name in names if name not in found.by_group and name not in problems}
    if problems:
        name = min(problems)
        raise Unreachable(f"the offsets of groups at the target are not known: {name}: {problems[name]}")
    for name, offsets in sorted(found.by_group.items()):
        beyond = offsets_beyond({key: at.offset for key, at in offsets.items()}, ends)
        ahead = {key: GroupOffset(beyond[key], -1, at.metadata) for key, at in offsets.items() if key in beyond}
        if ahead:
            await _move(target, name, offsets, ahead, link)


async def _move(
    target: GroupPort,
    group: str,
    former: Mapping[TopicPartition, GroupOffset],
    ahead: Mapping[TopicPartition, GroupOffset],
    link: LinkView,
) -> None:
    outcomes = await target.commit(group, ahead, link=link.name, link_epoch=link.epoch)
    for key, at in ahead.items():
        code = outcomes.get(key, ErrorCode.unknown_server_error)
        if code is ErrorCode.none:
            _state_change.warning(
                "group moved back to the end of a truncated copy",
                group=group,
                partition=str(key),
                offset=at.offset,
                former_offset=former[key].offset,
            )
        elif code is not ErrorCode.non_empty_group:
            raise Unreachable(f"group {group} keeps its offset {former[key].offset} of {key}: {code.name}")
