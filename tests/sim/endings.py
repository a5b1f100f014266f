"""The conditions that a site must meet after it was healed and left alone: complete, and with
nothing lost, doubled or left behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.sim.clients import Producer
from tests.sim.ledger import Ledger, body_of
from tests.sim.node import Node
from tests.sim.stored_logs import StoredLog
from tests.sim.world import World
from tests.sim.zookeeper_tree import Tree
from wire.znodes import layout as znodes
from wire.znodes.topic_znodes import decode_partition_state, decode_topic


def missing_for_wholeness(
    world: World, nodes: Mapping[int, Node], producers: Sequence[Producer], administrator: Any
) -> list[str]:
    """The conditions that are not met yet; empty when the site is complete."""
    missing = [f"{producer.name} waits for an acknowledgement" for producer in producers if producer.is_waiting]
    if administrator.is_busy:
        missing.append("the administrator waits for an answer")
    tree = world.ensemble.tree
    if znodes.CONTROLLER not in tree.nodes:
        missing.append("no controller is elected")
    missing += [f"broker {node} is not registered" for node in nodes if znodes.broker_path(node) not in tree.nodes]
    missing += [f"{name} is not deleted" for name in sorted(tree.nodes[znodes.DELETE_TOPICS].children)]
    for name in sorted(tree.nodes[znodes.TOPICS].children):
        missing += _missing_of_topic(tree, nodes, name)
    return missing


def _missing_of_topic(tree: Tree, nodes: Mapping[int, Node], name: str) -> Iterator[str]:
    topic = decode_topic(name, tree.nodes[znodes.topic_path(name)].value)
    if topic.adding_replicas or topic.removing_replicas:
        yield f"{name} is still reassigned"
    for index, replicas in topic.partitions.items():
        node = tree.nodes.get(znodes.partition_state_path(name, index))
        if node is None:
            yield f"{name}-{index} never had a leader"
            continue
        state = decode_partition_state(name, index, node.value)
        if state.leader not in replicas or not nodes[state.leader].is_running:
            yield f"{name}-{index} is led by {state.leader}"
        if set(state.isr) != set(replicas):
            yield f"{name}-{index} has in sync {state.isr} of {replicas}"
        logs = {replica: nodes[replica].disk.logs.get((name, index)) for replica in replicas}  # type: ignore[call-overload]
        if len({_content(log) for log in logs.values()}) > 1:
            yield f"{name}-{index} has logs that end at { {node: log.end if log else None for node, log in logs.items()} }"
        held = {node_id for node_id, found in nodes.items() if (name, index) in found.disk.logs}
        if held != set(replicas):
            yield f"{name}-{index} is on {sorted(held)} instead of {sorted(replicas)}"
        for replica in replicas:
            yield from _disagreement(nodes[replica], name, index, state)


def _content(log: StoredLog | None) -> tuple[Any, ...]:
    return () if log is None else tuple(batch.content for batch in log.batches)


def _disagreement(node: Node, name: str, index: int, state: Any) -> Iterator[str]:
    running = node.running
    hosted = None if running is None else running.broker.replication.replicas.find(name, index)
    if hosted is None:
        yield f"{name}-{index} is not hosted by {node.host}"
    elif hosted.state.leader_epoch != state.leader_epoch or hosted.state.leader != state.leader:
        yield f"{name}-{index}: {node.host} follows epoch {hosted.state.leader_epoch}, {state.leader_epoch} is stored"
    elif hosted.state.high_watermark != hosted.log.log_end_offset:
        yield f"{name}-{index}: {node.host} is safe up to {hosted.state.high_watermark} of {hosted.log.log_end_offset}"


def unsound_endings(
    world: World, ledger: Ledger, nodes: Mapping[int, Node], producers: Sequence[Producer]
) -> Iterator[tuple[str, str]]:
    """Invariant and story for each that does not hold at the end."""
    tree = world.ensemble.tree
    topics = {
        name: decode_topic(name, tree.nodes[znodes.topic_path(name)].value)
        for name in sorted(tree.nodes[znodes.TOPICS].children)
    }
    by_key = {
        (topic.topic_id, index): nodes[replicas[0]].disk.logs[name, index]  # type: ignore[index]
        for name, topic in topics.items()
        for index, replicas in topic.partitions.items()
    }
    yield from _lost_or_changed(ledger, by_key)
    promised = {key: log for key, log in by_key.items() if key not in ledger.waived}
    yield from _doubled(promised, producers)
    for node in nodes.values():
        for name, index in node.disk.logs:
            if name not in topics or index not in topics[name].partitions:
                yield (
                    "topics-are-whole-or-gone",
                    f"broker {node.node_id} keeps the log of {name}-{index}, which does not exist",
                )
    for name in sorted(tree.nodes[znodes.TOPIC_CONFIGS].children):
        if name not in topics:
            yield "topics-are-whole-or-gone", f"the configs of {name} are left behind"


def _lost_or_changed(ledger: Ledger, by_key: Mapping[Any, StoredLog]) -> Iterator[tuple[str, str]]:
    for invariant, reported in (
        ("acknowledged-records-stay", ledger.acknowledged),
        ("read-records-never-change", ledger.read),
    ):
        for key, batches in reported.items():
            log = by_key.get(key)
            if log is None or key in ledger.waived:
                continue
            found = {batch.base_offset: body_of(batch.content) for batch in log.batches}
            for offset, body in batches.items():
                if found.get(offset) != body:
                    yield (
                        invariant,
                        f"{log.topic}-{log.partition} at offset {offset}: {body!r} became {found.get(offset)!r}",
                    )


def _doubled(by_key: Mapping[Any, StoredLog], producers: Sequence[Producer]) -> Iterator[tuple[str, str]]:
    idempotent = {(one.topic, one.index): [] for one in producers}  # type: ignore[var-annotated]
    for producer in producers:
        if producer.producer_id >= 0:
            idempotent[producer.topic, producer.index].append(producer)
    for log in by_key.values():
        for producer in idempotent.get((log.topic, log.partition), ()):
            mark = f"{producer.name}:".encode()
            numbers = [
                int(content[content.index(mark) + len(mark) :].partition(b".")[0])
                for content in (batch.content for batch in log.batches)
                if mark in content
            ]
            if numbers != list(range(1, producer.sent + 1)):
                yield (
                    "idempotent-once-and-in-order",
                    f"{producer.name} sent {producer.sent} batches, the log has {numbers}",
                )
