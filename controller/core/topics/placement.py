"""Chooses the brokers that hold the replicas of new partitions.

The spread is Kafka's. The leaders of consecutive partitions are consecutive brokers, from a start
index. Followers are at a shift from their leader; the shift grows each round. If every broker has a
rack, the list alternates racks, and no rack gets a second replica before each rack has one. The
caller orders the brokers (`least_loaded_first`) and supplies start and shift, so the result is a
function of its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def least_loaded_first(load: Mapping[int, int]) -> tuple[int, ...]:
    """Node ids by the number of replicas that they hold, then by id."""
    return tuple(sorted(load, key=lambda node: (load[node], node)))


def alternate_racks(nodes: Sequence[int], racks: Mapping[int, str]) -> tuple[int, ...]:
    """The nodes in an order that visits the racks in turn; within a rack the given order stays."""
    by_rack: dict[str, list[int]] = {}
    for node in nodes:
        by_rack.setdefault(racks[node], []).append(node)
    rounds = max((len(members) for members in by_rack.values()), default=0)
    return tuple(by_rack[rack][turn] for turn in range(rounds) for rack in by_rack if turn < len(by_rack[rack]))


def place(
    *,
    nodes: Sequence[int],
    racks: Mapping[int, str],
    partition_count: int,
    replication_factor: int,
    first_partition: int = 0,
    start_index: int = 0,
    start_shift: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas by partition index, preferred leader first. Racks count only when every node has
    one.

    Needs 1 <= replication_factor <= len(nodes); the callers check that and refuse the request
    otherwise.
    """
    if not 1 <= replication_factor <= len(nodes):
        raise ValueError(f"replication factor {replication_factor} does not fit {len(nodes)} brokers")
    knows_racks = all(racks.get(node) for node in nodes)
    ring = alternate_racks(nodes, racks) if knows_racks else tuple(nodes)
    rack_of = {node: racks[node] if knows_racks else "" for node in ring}
    assignment: dict[int, tuple[int, ...]] = {}
    shift = start_shift
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        leader_index = (partition + start_index) % len(ring)
        assignment[partition] = _replicas(ring, rack_of, leader_index, shift, replication_factor)
    return assignment


def _replicas(
    ring: Sequence[int], rack_of: Mapping[int, str], leader_index: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(rack_of.values()))
    chosen = [ring[leader_index]]
    used_racks = {rack_of[chosen[0]]}
    step = 0
    while len(chosen) < replication_factor:
        node = ring[_follower_index(leader_index, shift * rack_count, step, len(ring))]
        step += 1
        if node not in chosen and (rack_of[node] not in used_racks or len(used_racks) == rack_count):
            chosen.append(node)
            used_racks.add(rack_of[node])
    return tuple(chosen)


def _follower_index(leader_index: int, shift: int, step: int, node_count: int) -> int:
    return (leader_index + 1 + (shift + step) % (node_count - 1)) % node_count
