"""Mirrors between the same two Apache Kafka brokers: a translate link of Antipode and MirrorMaker 2
mirror the same records in turns, never at the same time.

Each drains the records that wait at the source to its own topics at the target, and then mirrors a
steady load. Both brokers are warmed up, and each load is read once, before the first mirror starts.
The order of the mirrors changes with each repeat, because the second one finds warmer brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.loads import librdkafka
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.peers import antipode, apache_kafka, mirror_maker
from bench.peers.systems import PARTITION_COUNT, MeasuredBroker, check_complete
from bench.sections.brokers import produce
from bench.sections.mirrors.mirror import MirrorPair
from bench.sections.mirrors.mirror_drains import Load, drained, written
from bench.sections.mirrors.mirror_latency import case_of, follow_loads

SECTION = "translate"
LOADS = (Load(1_000, "none"), Load(1_000, "lz4"), Load(100, "none"))
BYTES_PER_S = {"steady-small": 1e6, "steady": 10e6}
"""The rate by topic; the product is added to the topic's name, so that one mirror does not wait for
the other's records.
"""
SOURCE_ALIAS = "antipode"
"""The alias of our link; MirrorMaker 2's topics at the target have another prefix."""


def measure(plan: Plan) -> None:
    """Measure both mirrors on a pair of brokers that is new for each repeat, and record the samples
    in the plan.
    """
    if Side.PEER not in plan.sides:
        plan.say(f"{SECTION} is left out: its brokers are the peer's")
        return
    for repeat in range(plan.repeats):
        directory = plan.directory / f"{SECTION}-{repeat}"
        with _brokers(directory) as (source, target):
            produce.warm_up(plan, (source, target))
            pairs = [_pair(side, directory, source, target) for side in in_turn(plan.sides, repeat)]
            for load in LOADS:
                _drain(plan, pairs, load)
            for pair in pairs:
                _carry(plan, pair, directory)


def in_turn(sides: Sequence[Side], repeat: int) -> tuple[Side, ...]:
    """The order of the products in a repeat: every second one is the reverse."""
    return tuple(reversed(sides)) if repeat % 2 else tuple(sides)


def steady_topics(side: Side) -> dict[str, float]:
    """The topics of a product's steady loads, and their bytes a second."""
    return {f"{topic}-{side}": rate for topic, rate in BYTES_PER_S.items()}


@contextmanager
def _brokers(directory: Path) -> Iterator[tuple[MeasuredBroker, MeasuredBroker]]:
    with ExitStack() as running:
        source, target = (
            running.enter_context(apache_kafka.lone_broker(directory / name, name=f"kafka-{name}"))
            for name in ("a", "b")
        )
        yield source, target


def _pair(side: Side, directory: Path, source: MeasuredBroker, target: MeasuredBroker) -> MirrorPair:
    ends = (source.bootstrap_servers, target.bootstrap_servers)
    topics = [*(load.topic for load in LOADS), *steady_topics(side)]
    if side is Side.ANTIPODE:
        child = antipode.translate_daemon(directory / "mirror", *ends, topics, source_alias=SOURCE_ALIAS)
    else:
        child = mirror_maker.child(directory / "mirror-maker", *ends, topics)
    return MirrorPair(
        side=side,
        source=source.bootstrap_servers,
        target_broker=target,
        child=child,
        target_topic=translated_topic if side is Side.ANTIPODE else mirror_maker.mirrored_topic,
    )


def translated_topic(topic: str) -> str:
    """The name at the target of a source topic on our link."""
    return f"{SOURCE_ALIAS}.{topic}"


def _drain(plan: Plan, pairs: Sequence[MirrorPair], load: Load) -> None:
    source = pairs[0].source
    count, _ = written(plan, source, load)
    librdkafka.consume(source, load.topic, PARTITION_COUNT, count, {})
    for pair in pairs:
        _, values, usage = drained(plan, pair, load, count)
        check_complete(pair.target, pair.target_topic(load.topic), count)
        plan.record(SECTION, f"drain, {load.case}", pair.side, usage, **values)


def _carry(plan: Plan, pair: MirrorPair, directory: Path) -> None:
    topics = steady_topics(pair.side)
    for topic, followed_load in follow_loads(plan, pair, directory, topics).items():
        plan.record(SECTION, case_of(topics[topic]), pair.side, followed_load.usage, **followed_load.values())
