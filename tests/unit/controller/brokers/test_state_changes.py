"""The state-change log has the leaders of all partitions, and the phases of partitions and
replicas.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.brokers.state_changes import log_state_changes
from controller.core import commands as ask
from controller.core.decisions import Decision
from controller.core.state.site_values import Replica
from runtime.logs import STATE_CHANGE, configure
from tests.support.memory.site_model import SiteModel, topic_request
from wire.protocol.ids import TopicPartition


@pytest.fixture
def changes(tmp_path: Path) -> Iterator[Path]:
    """A state-change log of its own."""
    root, state_change = logging.getLogger(), logging.getLogger(STATE_CHANGE)
    before = root.handlers[:], root.level, state_change.handlers[:], state_change.propagate
    path = tmp_path / "state-change.log"
    configure("controller", file=tmp_path / "controller.log", state_change_file=path)
    yield path
    for handler in (*root.handlers, *state_change.handlers):
        if handler not in (*before[0], *before[2]):
            handler.close()
    root.handlers[:], state_change.handlers[:] = before[0], before[2]
    root.setLevel(before[1])
    state_change.propagate = before[3]


class LoggedSite(SiteModel):
    """Logs each decision as the event loop does."""

    def give(self, command: ask.Command) -> Decision:
        decision = super().give(command)
        log_state_changes(decision.facts)
        return decision


def replayed(path: Path) -> tuple[dict[TopicPartition, str], dict[Replica, str]]:
    """The phases that the log leaves."""
    partitions: dict[TopicPartition, str] = {}
    replicas: dict[Replica, str] = {}
    for line in path.read_text().splitlines():
        moved = re.search(r'event="(partitions|replicas) moved"', line)
        if moved is None:
            continue
        said = dict(re.findall(r"(topic|broker|phase)=(\S+)", line))
        listed = re.search(r'partitions="?\[([\d, ]*)\]', line)
        assert listed is not None, line
        for index in map(int, listed[1].split(",")):
            if moved[1] == "partitions":
                partitions[TopicPartition(said["topic"], index)] = said["phase"]
            else:
                replicas[Replica(said["topic"], index, int(said["broker"]))] = said["phase"]
    return partitions, replicas


def test_phases_are_replayed_from_the_log(changes: Path) -> None:
    model = LoggedSite()
    model.alive(1, 2, 3)
    model.take_over()
    for name in ("t", "u", "w"):
        model.give(ask.CreateTopics(topics=(topic_request(name, 2, 2),)))
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    model.give(ask.DeleteTopics(names=("u",)))
    model.answer_deletions()
    partitions, replicas = replayed(changes)
    assert partitions == {name: phase.value for name, phase in model.cluster.partition_phases.items()}
    assert replicas == {name: phase.value for name, phase in model.cluster.replica_phases.items()}


def test_partitions_with_the_same_leadership_share_a_line(changes: Path) -> None:
    model = LoggedSite()
    model.alive(1, 2)
    model.take_over()
    model.give(ask.CreateTopics(topics=(topic_request("t", 6, 1),)))
    lines = [line for line in changes.read_text().splitlines() if "event=leadership" in line]
    found: dict[int, int] = {}
    for line in lines:
        (leader,) = re.findall(r" leader=(\d+)", line)
        (listed,) = re.findall(r'partitions="?\[([\d, ]*)\]', line)
        found |= dict.fromkeys(map(int, listed.split(",")), int(leader))
    known = model.cluster.leaderships.items()
    assert found == {partition.partition: leadership.leader for partition, leadership in known}
    assert len(lines) == len(set(found.values())) == 2
