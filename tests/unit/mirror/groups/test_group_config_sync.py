"""Configs of groups at the target follow those at the source, for the groups that the link
carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from mirror.groups.group_config_sync import GroupConfigSync
from mirror.link.core.link_roles import LinkRole
from mirror.link.group_ports import ConfigRefused
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView
from mirror.link.ports import Unreachable
from tests.support.clock import ManualClock
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.access_digests import GROUP_CONFIGS, group_configs_digest

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


class Site:
    """Configs by group; refuses these values."""

    def __init__(self, configs: Mapping[str, Mapping[str, str]], *, refused: str = "") -> None:
        self.configs = {group: dict(found) for group, found in configs.items()}
        self.refused = refused
        self.altered: list[str] = []
        self.is_up = True

    async def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        return {group: dict(found) for group, found in self.configs.items() if found}

    async def alter_group_configs(
        self, group: str, *, to_set: Mapping[str, str], to_remove: Sequence[str], link: str, link_epoch: int
    ) -> None:
        assert (link, link_epoch) == ("a-b", 1)
        self.altered.append(group)
        if not self.is_up:
            raise Unreachable("the connection was lost")
        if self.refused in to_set.values():
            raise ConfigRefused(f"{self.refused} is out of bounds")
        found = {**self.configs.get(group, {}), **to_set}
        self.configs[group] = {name: value for name, value in found.items() if name not in to_remove}


def sync(source: Site, target: Site, *, role: LinkRole = LinkRole.MIRRORING, is_routed: bool = True) -> GroupConfigSync:
    record = LinkRecord(
        name="a-b", source_site="a", target_site="b", active_site="a", group_whitelist=["g.*"], is_routed=is_routed
    )
    link_view = LinkView("a-b", 1, role, "", record, "b")
    return GroupConfigSync(source=source, target=target, link=KnownLink(link_view), clock=ManualClock(), interval_ms=1)


async def test_configs_are_set_changed_and_removed_at_the_target_as_at_the_source() -> None:
    source, target = Site({"g1": {SESSION: "50000"}, "other": {SESSION: "50000"}}), Site({"own": {INTERVAL: "6000"}})
    syncing = sync(source, target)
    await syncing.round()
    assert target.configs == {"g1": {SESSION: "50000"}, "own": {INTERVAL: "6000"}}
    source.configs["g1"] = {INTERVAL: "7000"}
    await syncing.round()
    assert target.configs["g1"] == {INTERVAL: "7000"}
    await syncing.round()
    assert target.altered == ["g1", "g1"]
    del source.configs["g1"]
    await syncing.round()
    assert target.configs["g1"] == {}


async def test_a_round_leaves_the_digest_of_what_the_target_has_or_has_refused() -> None:
    source, target = Site({"g1": {SESSION: "50000"}, "other": {SESSION: "1"}}), Site({}, refused="99999")
    syncing = sync(source, target)
    assert syncing.state.carried == ({GROUP_CONFIGS: ""}, None)
    await syncing.round()
    assert syncing.state.carried == ({GROUP_CONFIGS: group_configs_digest({"g1": {SESSION: "50000"}})}, 0)
    source.configs["g1"] = {SESSION: "99999"}
    await syncing.round()
    assert syncing.state.carried == ({GROUP_CONFIGS: group_configs_digest({"g1": {SESSION: "99999"}})}, 0)
    source.configs["g1"] = {SESSION: "60000"}
    target.is_up = False
    with pytest.raises(Unreachable):
        await syncing.round()
    assert syncing.state.carried == ({GROUP_CONFIGS: ""}, 0), "the target may have the change or lack it"


async def test_where_groups_may_work_at_the_target_only_what_was_carried_is_removed() -> None:
    source, target = Site({"g1": {SESSION: "50000"}}), Site({"g1": {INTERVAL: "6000"}, "g2": {INTERVAL: "6000"}})
    syncing = sync(source, target, is_routed=False)
    await syncing.round()
    assert target.configs == {"g1": {SESSION: "50000", INTERVAL: "6000"}, "g2": {INTERVAL: "6000"}}
    source.configs.clear()
    await syncing.round()
    assert target.configs == {"g1": {INTERVAL: "6000"}, "g2": {INTERVAL: "6000"}}


async def test_a_config_that_the_target_refuses_is_asked_for_once_and_keeps_no_other_group_waiting() -> None:
    source, target = Site({"g1": {SESSION: "1"}, "g2": {SESSION: "50000"}}), Site({}, refused="1")
    syncing = sync(source, target)
    await syncing.round()
    await syncing.round()
    assert target.altered == ["g1", "g2"]
    source.configs["g1"] = {SESSION: "46000"}
    await syncing.round()
    assert target.configs["g1"] == {SESSION: "46000"}


async def test_a_link_that_has_turned_carries_nothing() -> None:
    target = Site({})
    await sync(Site({"g1": {SESSION: "50000"}}), target, role=LinkRole.TURNED).round()
    assert target.configs == {}
