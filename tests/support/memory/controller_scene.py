"""The conversation of golden scripts with a controller over a `SiteModel`: its commands are the
methods named `do_*`.
"""

from __future__ import annotations

import shlex

from kio.schema.errors import ErrorCode
from msgspec import structs

from controller.core import commands as ask
from controller.core.decisions import Decision, Publish, PublishImage
from controller.core.link_claims import LinkClaim
from controller.core.state import facts
from tests.support.memory.site_model import Crashed, SiteModel, copied, link_record, topic_request
from wire.control.cluster_pb2 import LinkPhase
from wire.protocol.ids import TopicPartition


class ControllerScene:
    """Golden scripts: one command on each line; the answer shows the decision, the messages, and
    the resulting state.
    """

    def __init__(self) -> None:
        self.model = SiteModel()
        self.failing: frozenset[int] = frozenset()

    def answer(self, command: str) -> str:
        """Carry out every line."""
        return "\n".join(line for text in command.splitlines() for line in self._line(text))

    def _line(self, text: str) -> list[str]:
        verb, *words = shlex.split(text)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        answer: list[str] = getattr(self, f"do_{verb.replace('-', '_')}")(*names, **options)
        return answer

    def _give(self, command: ask.Command) -> list[str]:
        try:
            return reported(self.model.give(command))
        except Crashed:
            return ["the controller crashed"]

    def do_brokers(self, *nodes: str, **racks: str) -> list[str]:
        """Exactly these brokers are alive; `1=rack`."""
        named = {int(node): rack for node, rack in racks.items()}
        alive = self.model.alive(*map(int, nodes), *named, racks=named)
        return [] if self.model.machine is None else self._give(ask.BrokersListed(brokers=alive))

    def do_restart(self, node: str) -> list[str]:
        """A broker registers again before the controller noticed its absence."""
        others = [other for other in self.model.brokers if other != int(node)]
        self.model.alive(*others)
        alive = self.model.alive(*others, int(node))
        return [] if self.model.machine is None else self._give(ask.BrokersListed(brokers=alive))

    def do_die(self) -> list[str]:
        """The controller is gone."""
        self.model.machine = None
        return []

    def do_take_over(self) -> list[str]:
        """A new controller."""
        try:
            return reported(self.model.take_over())
        except Crashed:
            return ["the controller crashed"]

    def do_crash_after(self, facts_stored: str) -> list[str]:
        """The controller dies after this many further stored facts."""
        self.model.crash_after = self.model.commits + int(facts_stored)
        return []

    def do_create(
        self, name: str, partitions: str = "1", factor: str = "1", claim: str = "", **configs: str
    ) -> list[str]:
        """Create a topic."""
        link, _, epoch = claim.partition("@")
        request = topic_request(
            name,
            int(partitions),
            int(factor),
            claim=LinkClaim(link=link, epoch=int(epoch or 0)),
            configs=configs,
        )
        if name in self.model.cluster.topics:  # another topic of this name, not the same request again
            request = structs.replace(request, topic_id=b"another".ljust(16, b"."))
        return self._give(ask.CreateTopics(topics=(request,)))

    def do_grow(self, name: str, total: str) -> list[str]:
        """Grow a topic."""
        return self._give(ask.CreatePartitions(topics=(ask.GrowthRequest(name=name, total_count=int(total)),)))

    def do_written(self, name: str, version: str, **replicas: str) -> list[str]:
        """Another tool wrote the topic's assignment, as p0=1,2 and so on."""
        assignment = {int(index[1:]): tuple(map(int, nodes.split(","))) for index, nodes in replicas.items()}
        return self._give(ask.PartitionsFound(topic=name, assignment=assignment, version=int(version)))

    def do_configure(self, name: str, *removed: str, **configs: str) -> list[str]:
        """Change configs."""
        change = ask.ConfigChange(name=name, set_configs=configs, remove=removed)
        return self._give(ask.AlterTopicConfigs(changes=(change,)))

    def do_delete(self, *names: str) -> list[str]:
        """Delete topics."""
        return self._give(ask.DeleteTopics(names=names))

    def do_answers(self, failing: str = "") -> list[str]:
        """Brokers answer deletions."""
        nodes = frozenset(int(node) for node in failing.split(",") if node)
        try:
            return [line for decision in self.model.answer_deletions(failing=nodes) for line in reported(decision)]
        except Crashed:
            return ["the controller crashed"]

    def do_retry(self) -> list[str]:
        """Failed deletions are tried again."""
        return self._give(ask.RetryDeletions())

    def do_refuse(self, node: str) -> list[str]:
        """No process listens at the broker's address."""
        return self._give(ask.BrokerUnreachable(node_id=int(node), broker_epoch=self.model.brokers[int(node)].epoch))

    def do_identify(self, node: str) -> list[str]:
        """The broker answers as the one that is registered."""
        return self._give(ask.BrokerAnswered(node_id=int(node), broker_epoch=self.model.brokers[int(node)].epoch))

    def do_lose(self, node: str, *partitions: str) -> list[str]:
        """The broker reports that exactly these partitions' log directories are lost."""
        named = frozenset(_partition(name) for name in partitions)
        epoch = self.model.brokers[int(node)].epoch
        return self._give(ask.ReplicasOffline(node_id=int(node), broker_epoch=epoch, partitions=named))

    def do_stop(self, node: str) -> list[str]:
        """A broker is about to stop."""
        return self._give(ask.ControlledShutdown(node_id=int(node), broker_epoch=self.model.brokers[int(node)].epoch))

    def do_break(self, name: str) -> list[str]:
        """A tool writes malformed content into a znode of the topic."""
        self.model.broken[name] = f"znode /brokers/topics/{name}: not JSON"
        return []

    def do_mend(self, name: str) -> list[str]:
        """The topic's znodes are as they were; the controller looks at them, then at the marks."""
        return [line for decision in self.model.mend(name) for line in reported(decision)]

    def do_remove(self, name: str) -> list[str]:
        """A tool removes the topic's znodes."""
        del self.model.topics[name]
        for partition in [known for known in self.model.leaderships if known.topic == name]:
            del self.model.leaderships[partition]
        return self.do_mend(name)

    def do_mark(self, *names: str) -> list[str]:
        """A tool marks topics for deletion in ZooKeeper; the controller reads the marks."""
        self.model.deletions |= set(names)
        return self._give(ask.DeletionsMarked(topics=tuple(sorted(self.model.deletions))))

    def do_unregister(self, node: str) -> list[str]:
        """An operator gives up a broker."""
        return self._give(ask.UnregisterBroker(node_id=int(node)))

    def do_propose(self, partition: str, isr: str, **changed: str) -> list[str]:
        """The partition's leader proposes in-sync replicas; `leader_epoch=` and `partition_epoch=`
        lie.
        """
        try:
            decision = self.model.proposed(
                _partition(partition), _nodes_of(isr), **{name: int(value) for name, value in changed.items()}
            )
        except Crashed:
            return ["the controller crashed"]
        return reported(decision)

    def do_reassign(self, partition: str, replicas: str) -> list[str]:
        """Other replicas for a partition; `cancel` ends what is under way."""
        target = None if replicas == "cancel" else _nodes_of(replicas)
        return self._give(ask.AlterReassignments(targets=((_partition(partition), target),)))

    def do_elect(self, *partitions: str, kind: str = "preferred") -> list[str]:
        """Elections on request; without partitions, of all."""
        named = tuple(_partition(name) for name in partitions) or None
        return self._give(ask.ElectLeaders(partitions=named, is_unclean=kind == "unclean"))

    def do_unclean(self, wish: str) -> list[str]:
        """Unclean elections are allowed (`true`) or ruled out (`false`) for all brokers, or neither
        (`unset`).
        """
        self.model.altered_unclean_election = None if wish == "unset" else wish == "true"
        if self.model.machine is None:
            return []
        return self._give(ask.UncleanElectionRead(is_allowed=self.model.altered_unclean_election))

    def do_balance(self, percentage: str = "10") -> list[str]:
        """The controller looks at the balance of leaders."""
        return self._give(ask.BalanceLeaders(imbalance_percentage=int(percentage)))

    def do_link(self, active: str = "b", epoch: str = "1", floor: str = "0", phase: str = "MIRRORING") -> list[str]:
        """The link b-a is stored with this record."""
        record = link_record(active=active, epoch=int(epoch), floor=int(floor), phase=LinkPhase.Value(phase))
        self.model.links = {"b-a": record}
        return [] if self.model.machine is None else self._give(ask.LinksListed(links={"b-a": copied(record)}))

    def do_store_raised(self, count: str) -> list[str]:
        """States of so many partitions whose leader epochs were raised are stored."""
        return self._give(ask.StoreRaised(count_max=int(count)))

    def do_show(self) -> list[str]:
        """Partitions as the controller sees them."""
        cluster = self.model.cluster
        lines = []
        for partition, phase in sorted(cluster.partition_phases.items()):
            known = cluster.leaderships.get(partition)
            leadership = "never led"
            if known is not None:
                leadership = f"leader {known.leader} epoch {known.leader_epoch} isr {_nodes(known.isr)}"
            replicas = _nodes(cluster.replicas_of(partition))
            lines.append(f"{partition} {phase.value.removesuffix('Partition')} replicas {replicas} {leadership}")
        lines += [f"deleting {name}" for name in sorted(cluster.deletions)]
        lines += [f"in quarantine {name}" for name in sorted(cluster.quarantine)]
        return lines or ["nothing"]


def _partition(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))


def _nodes_of(text: str) -> tuple[int, ...]:
    return tuple(int(node) for node in text.split(",") if node)


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))


def reported(decision: Decision) -> list[str]:
    """A decision in lines: outcomes, stored leaderships and topics, and the published changes with
    their receivers.
    """
    lines = [_outcome(outcome.name or "(unknown)", outcome.error, outcome.message) for outcome in decision.reply]
    lines += [_outcome(str(answer.partition), answer.error, answer.message) for answer in decision.partitions]
    if decision.error:
        lines.append(f"{decision.error.name} {decision.message}".rstrip())
    for change in decision.facts:
        lines += _stored(change)
    for effect in decision.effects:
        match effect:
            case PublishImage(node_ids=node_ids):
                lines.append(f"image to {_nodes(node_ids)}")
            case Publish():
                reported_of = [
                    *sorted(map(str, effect.partitions)),
                    *(f"raise {one.name}" for one in effect.raises),
                    *(f"configs of {name}" for name in sorted(effect.topics)),
                    *(f"deletion of {name}" for name, _ in effect.deleted_topics),
                    *(f"link {name}" for name in sorted(effect.links)),
                ]
                lines.append(f"tell all brokers: {', '.join(reported_of) or 'who is alive'}")
    return lines or ["nothing to do"]


def _outcome(name: str, error: ErrorCode, message: str) -> str:
    return f"{name}: {error.name if error else 'ok'}{' ' + message if message else ''}"


def _stored(change: facts.Fact) -> list[str]:
    """The content that a fact stores in ZooKeeper; nothing for facts in memory."""
    match change:
        case facts.TopicCreated(topic=topic):
            return [f"store topic {topic.name}"]
        case facts.PartitionsAdded(topic=name):
            return [f"store more partitions of {name}"]
        case facts.PartitionsReassigned(topic=name, partitions=moved):
            return [
                f"store replicas of {name}-{index}: {_nodes(new.replicas)} adding {_nodes(new.adding) or 'none'}"
                f" removing {_nodes(new.removing) or 'none'}"
                for index, new in moved.items()
            ]
        case facts.TopicConfigsReplaced(topic=name, configs=configs):
            return [f"store configs of {name}: {dict(configs)}"]
        case facts.LeadershipChanged(partition=partition, leadership=led):
            return [
                (
                    f"store {partition}: leader {led.leader} epoch {led.leader_epoch} isr {_nodes(led.isr)}"
                    f" by controller {led.controller_epoch}"
                )
            ]
        case facts.LeaderEpochsRaised(epoch_raise=one):
            return [f"store raise {one.name}: leader epochs of {', '.join(sorted(one.topics))} at {one.floor} or above"]
        case facts.EpochRaiseEnded(name=name):
            return [f"store that raise {name} has ended"]
        case facts.TopicDeletionRequested(topic=name):
            return [f"store the wish to delete {name}"]
        case facts.BrokerUnregistered(node_id=node):
            return [f"store that broker {node} was given up"]
        case facts.UnregistrationEnded(node_id=node):
            return [f"store that broker {node} is a broker again"]
        case facts.TopicDeleted(topic=name):
            return [f"store that {name} is gone"]
        case _:
            return []
