"""One run: first the brokers' sections on one pair of brokers, then the sections that need their
own brokers or sites.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.peers import antipode, apache_kafka
from bench.peers.systems import MeasuredBroker
from bench.sections.brokers import (
    bridge,
    compaction,
    compiled_modules,
    consume,
    group_joins,
    login_storm,
    produce,
    recovery,
    request_rate,
    resident_memory,
    spark,
    start_up,
    tls,
    transactions,
)
from bench.sections.mirrors import (
    far_mirror,
    mirror,
    mirror_drains,
    mirror_groups,
    mirror_latency,
    mirror_topics,
    mirror_transactions,
    translate,
)
from bench.sections.sites import partitions, reconciling, recovery_time, replicated, unavailability
from runtime.process import OperationalFailure

DISK_BYTES_NEEDED = 10e9
"""Disk space at full scale: 2 GB each at source and target of a mirror, topics that are being
deleted, and a reserve.
"""

BROKER_SECTIONS: Mapping[str, Callable[[Plan, Sequence[MeasuredBroker]], None]] = {
    "start-up": start_up.measure,
    "memory": resident_memory.measure,
    "requests": request_rate.measure,
    "produce": produce.measure,
    "consume": consume.measure,
    "bridge": bridge.measure,
    "groups": group_joins.measure,
    "transactions": transactions.measure,
}
"""The sections in their order: memory is measured on brokers that have just started."""
ALONE: Mapping[str, Callable[[Plan], None]] = {
    "compiled": compiled_modules.measure,
    "mirror": mirror.measure,
    "mirror-latency": mirror_latency.measure,
    "mirror-drains": mirror_drains.measure,
    "translate": translate.measure,
    "mirror-transactions": mirror_transactions.measure,
    "mirror-topics": mirror_topics.measure,
    "mirror-groups": mirror_groups.measure,
    "mirror-far": far_mirror.measure_far,
    "mirror-lossy": far_mirror.measure_lossy,
    "replicated": replicated.measure,
    "partitions": partitions.measure,
    "unavailability": unavailability.measure,
    "recovery-time": recovery_time.measure,
    "compaction": compaction.measure,
    "recovery": recovery.measure,
    "tls": tls.measure,
    "storm": login_storm.measure,
    "reconcile": reconciling.measure,
    "spark": spark.measure,
}
"""Sections that start their own brokers, first for one product and then for the other."""


def run(plan: Plan, sections: Collection[str]) -> None:
    """Measure the sections. Raises OperationalFailure if the disk is too small or a part fails."""
    _check_disk(plan.directory, DISK_BYTES_NEEDED * plan.scale)
    wanted = [measure for name, measure in BROKER_SECTIONS.items() if name in sections]
    if wanted:
        with ExitStack() as running:
            brokers = []
            for side in plan.sides:
                plan.say(f"starting {side}")
                start = antipode.lone_broker if side is Side.ANTIPODE else apache_kafka.lone_broker
                brokers.append(running.enter_context(start(plan.directory / str(side))))
            for measure in wanted:
                measure(plan, brokers)
    for name, measure_alone in ALONE.items():
        if name in sections:
            measure_alone(plan)


def _check_disk(directory: Path, needed_bytes: float) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed_bytes:
        raise OperationalFailure(
            f"{directory} has {free / 1e9:.1f} GB free, {needed_bytes / 1e9:.1f} GB are needed: make room, or give a smaller --scale"
        )
