"""The controller's machine: `decide` reads the cluster and changes nothing, `apply` changes it and
decides nothing.

The event loop decides, commits, applies and acts: it writes `Decision.facts` to ZooKeeper in one
guarded multi, applies them here, then carries out the effects. If a decision needs several multis,
a controller may stop between two of them. The facts are ordered so that its successor can finish
from every prefix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, assert_never

from controller.core import commands as ask
from controller.core import quarantine
from controller.core.brokers import membership
from controller.core.commands import Command
from controller.core.decisions import Decision
from controller.core.draft import Draft
from controller.core.entities import acl_admin, group_config_admin, quota_admin, scram_admin, token_admin
from controller.core.entity_commands import (
    AclsRead,
    AlterAcls,
    AlterClientQuotas,
    AlterDelegationTokens,
    AlterGroupConfigs,
    AlterScramUsers,
    ClientQuotasRead,
    DelegationTokensRead,
    EntityConfigCommand,
    GroupConfigsRead,
    RemoveExpiredTokens,
    ScramUsersRead,
)
from controller.core.partitions import epoch_raises, isr_changes, leader_moves, reassignment
from controller.core.state import facts
from controller.core.state.cluster import Cluster
from controller.core.topics import topic_admin, topic_deletion
from runtime.invariants import InvariantBroken

STORY_LENGTH_MAX = 32


class ControllerMachine:
    """Decides for one elected controller, with the cluster that it loaded."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._outcome: tuple[tuple[facts.Fact, ...], Cluster] = ((), cluster)
        self._story: deque[str] = deque(maxlen=STORY_LENGTH_MAX)

    def decide(self, command: Command) -> Decision:
        """Decide a command. Raises InvariantBroken, with the last decisions, when the rules
        contradict each other.
        """
        draft = Draft(self.cluster)
        try:
            reason = self._consider(draft, command)
            # an election may have left the wanted replicas alone in sync
            reassignment.complete_in_sync(draft, tuple(draft.changed_partitions))
        except InvariantBroken as error:
            raise self._reported(error) from error
        decision = draft.finish(reason)
        if decision.facts:
            self._story.append(decision.reason)
            self._outcome = (decision.facts, draft.cluster)
        return decision

    def apply(self, changes: Iterable[facts.Fact]) -> None:
        """Apply committed facts to a copy of the cluster; readers of the former value see no
        change.
        """
        decided, outcome = self._outcome
        if changes is decided:
            # the draft of the decision has applied these facts to its copy, and no other facts were
            # applied since, so that copy is the new cluster
            self.cluster = outcome
            return
        cluster = self.cluster.copy()
        try:
            for change in changes:
                cluster.apply(change)
        except InvariantBroken as error:
            raise self._reported(error) from error
        self.cluster = cluster

    def _reported(self, error: InvariantBroken) -> InvariantBroken:
        return InvariantBroken("\n  ".join([f"{error}; decisions before it:", *self._story]))

    def _consider(self, draft: Draft, command: Command) -> str:  # noqa: C901 (one branch a command)
        if isinstance(command, EntityConfigCommand):
            return _apply_entity_configs(draft, command)
        match command:
            case ask.CreateTopics():
                topic_admin.create_topics(draft, command)
                return f"create topics {_names(request.name for request in command.topics)}"
            case ask.CreatePartitions():
                topic_admin.create_partitions(draft, command)
                return f"grow topics {_names(request.name for request in command.topics)}"
            case ask.AlterTopicConfigs():
                topic_admin.alter_topic_configs(draft, command)
                return f"configure topics {_names(change.name for change in command.changes)}"
            case ask.DeleteTopics():
                topic_deletion.delete_topics(draft, command)
                return f"delete topics {_names(command.names)}"
            case ask.DeletionsMarked():
                topic_deletion.take_marks(draft, command)
                return "deletion marks were read"
            case ask.DeletionsAnswered():
                topic_deletion.take_answers(draft, command)
                return f"broker {command.node_id} answered deletions"
            case ask.RetryDeletions() | ask.StoreRaised():
                return _continue(draft, command)
            case ask.TakeOver():
                membership.take_over(draft, command)
                return f"controller {draft.cluster.controller_id} becomes active with epoch {draft.cluster.controller_epoch}"
            case ask.BrokersListed():
                membership.list_brokers(draft, command)
                return "brokers were listed"
            case ask.QuarantineLookedAt():
                quarantine.look_again(draft, command)
                return f"topics in quarantine were read again; {len(command.problems)} remain"
            case ask.LinksListed():
                membership.list_links(draft, command)
                return "links were listed"
            case ask.TopicsDiscovered() | ask.PartitionsFound() | ask.TopicConfigsRead():
                return _apply_written(draft, command)
            case ask.AlterPartitions():
                isr_changes.alter_partitions(draft, command)
                return f"broker {command.node_id} proposed in-sync replicas of {len(command.proposals)} partitions"
            case ask.BrokerUnreachable():
                membership.presume_dead(draft, command)
                return f"broker {command.node_id} refuses connections"
            case ask.BrokerAnswered():
                membership.take_back(draft, command)
                return f"broker {command.node_id} answers"
            case ask.ControlledShutdown():
                leader_moves.prepare_shutdown(draft, command)
                return f"broker {command.node_id} begins a controlled shutdown"
            case ask.UnregisterBroker():
                membership.unregister(draft, command)
                return f"broker {command.node_id} is unregistered by request"
            case ask.ReplicasOffline():
                membership.apply_offline_replicas(draft, command)
                return f"broker {command.node_id} reported {len(command.partitions)} replicas offline"
            case ask.ElectLeaders():
                leader_moves.elect_leaders(draft, command)
                return "elections were requested"
            case ask.BalanceLeaders():
                leader_moves.balance(draft, command.imbalance_percentage)
                return "leaderships were balanced"
            case ask.UncleanElectionRead():
                leader_moves.take_unclean_election(draft, command)
                return f"unclean elections of all topics: {_WISHES[command.is_allowed]}"
            case ask.AlterReassignments():
                reassignment.alter(draft, command)
                return f"reassignments of {len(command.targets)} partitions were requested"
        assert_never(command)


_WISHES: Final = {True: "allowed", False: "forbidden", None: "as in the properties file"}


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _apply_entity_configs(draft: Draft, command: EntityConfigCommand) -> str:
    """Decide a change of single clients', users' or groups' configs, or of ACLs."""
    match command:
        case AlterAcls() | AclsRead():
            return acl_admin.consider(draft, command)
        case AlterDelegationTokens() | DelegationTokensRead() | RemoveExpiredTokens():
            return token_admin.consider(draft, command)
        case AlterClientQuotas() | ClientQuotasRead():
            return quota_admin.consider(draft, command)
        case AlterScramUsers() | ScramUsersRead():
            return scram_admin.consider(draft, command)
        case AlterGroupConfigs() | GroupConfigsRead():
            return group_config_admin.consider(draft, command)


def _continue(draft: Draft, command: ask.RetryDeletions | ask.StoreRaised) -> str:
    """Decide the next part of work that the controller does in the background."""
    if isinstance(command, ask.StoreRaised):
        epoch_raises.store_some(draft, count_max=command.count_max)
        return "raised leader epochs are stored"
    topic_deletion.retry(draft)
    return "failed deletions are retried"


def _apply_written(draft: Draft, command: ask.TopicsDiscovered | ask.PartitionsFound | ask.TopicConfigsRead) -> str:
    """Decide about topics that another process wrote to ZooKeeper."""
    match command:
        case ask.TopicsDiscovered():
            _discover(draft, command)
            return f"topics were found: {_names(topic.name for topic in command.topics)}"
        case ask.PartitionsFound():
            topic_admin.take_partitions(draft, command)
            return f"the assignment of {command.topic!r} was written by another process"
        case ask.TopicConfigsRead():
            _apply_configs(draft, command)
            return f"configs of {command.topic!r} were read"
    assert_never(command)


def _discover(draft: Draft, command: ask.TopicsDiscovered) -> None:
    for topic in command.topics:
        if topic.name not in draft.cluster.topics and topic.name not in draft.cluster.quarantine:
            draft.record(facts.TopicCreated(topic=topic, must_store=False))
            topic_admin.start_partitions(draft, topic.partitions())
            draft.changed_topics.add(topic.name)


def _apply_configs(draft: Draft, command: ask.TopicConfigsRead) -> None:
    topic = draft.cluster.topics.get(command.topic)
    if topic is not None and topic.configs != command.configs:
        draft.record(facts.TopicConfigsReplaced(topic=command.topic, configs=command.configs, must_store=False))
        if not draft.cluster.is_deleting(command.topic):
            draft.changed_topics.add(command.topic)
            draft.bring_online(draft.cluster.topics[command.topic].partitions())
