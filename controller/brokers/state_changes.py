"""Write a decision to the state-change log: leaderships, and phases of partitions and replicas.

Partitions of a topic that get the same leader, leader epoch and in-sync replicas share a line, as
do those of one phase: a decision may be about thousands of partitions. Each line names the new
phase, so the phases can be replayed from the log. Caller: `event_loop.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from controller.core.state import facts
from runtime.logs import STATE_CHANGE, LogLines, state_change_logger
from wire.rules.acls import Acl


def log_state_changes(changes: Iterable[facts.Fact]) -> None:
    """Write the lines of these facts."""
    leaderships: dict[tuple[str, int, int, tuple[int, ...], int], list[int]] = defaultdict(list)
    partitions: dict[tuple[str, str], list[int]] = defaultdict(list)
    replicas: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for change in changes:
        match change:
            case facts.LeadershipChanged(partition=partition, leadership=leadership):
                new = leadership
                key = partition.topic, new.leader, new.leader_epoch, new.isr, new.controller_epoch
                leaderships[key].append(partition.partition)
            case facts.PartitionMoved(partition=partition, phase=partition_phase):
                partitions[partition.topic, partition_phase.value].append(partition.partition)
            case facts.ReplicaMoved(replica=replica, phase=replica_phase):
                replicas[replica.topic, replica.node, replica_phase.value].append(replica.partition)
            case _:
                _log_broker(change)
                _log_topic(change)
    _log_phases(partitions, replicas)
    of_leaders = LogLines(STATE_CHANGE, "leadership")
    for (topic, leader, leader_epoch, isr, controller_epoch), indexes in leaderships.items():
        of_leaders.add(
            topic=topic,
            partitions=indexes,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(isr),
            controller_epoch=controller_epoch,
        )
    of_leaders.write()


def _log_phases(partitions: dict[tuple[str, str], list[int]], replicas: dict[tuple[str, int, str], list[int]]) -> None:
    of_partitions, of_replicas = LogLines(STATE_CHANGE, "partitions moved"), LogLines(STATE_CHANGE, "replicas moved")
    for (topic, phase), indexes in partitions.items():
        of_partitions.add(topic=topic, phase=phase, partitions=indexes)
    for (topic, node, phase), indexes in replicas.items():
        of_replicas.add(topic=topic, broker=node, phase=phase, partitions=indexes)
    of_partitions.write()
    of_replicas.write()


def _log_broker(change: facts.Fact) -> None:
    log = state_change_logger()
    match change:
        case facts.BrokerJoined(broker=broker):
            log.info("broker joined", broker=broker.node_id, broker_epoch=broker.epoch)
        case facts.BrokerLeft(node_id=node_id, is_presumed=is_presumed):
            log.info("broker left", broker=node_id, is_presumed=is_presumed)
        case facts.BrokerLeaving(node_id=node_id):
            log.info("broker begins controlled shutdown", broker=node_id)
        case facts.BrokerUnregistered(node_id=node_id):
            log.info("broker unregistered", broker=node_id)
        case facts.LeaderEpochsRaised(epoch_raise=one):
            log.info("leader epochs raised", floor=one.floor, topics=len(one.topics), epoch_raise=one.name)
        case facts.EpochRaiseEnded(name=name):
            log.info("raised leader epochs are stored", epoch_raise=name)
        case facts.UnregistrationEnded(node_id=node_id):
            log.info("unregistered broker registered again", broker=node_id)
        case facts.OfflineReplicasKnown(node_id=node_id, partitions=lost):
            log.info("broker reported offline replicas", broker=node_id, partitions=len(lost))
        case _:
            pass


def _log_topic(change: facts.Fact) -> None:
    log = state_change_logger()
    match change:
        case facts.PartitionsReassigned(topic=topic, partitions=partitions):
            log.info(
                "reassigned",
                topic=topic,
                replicas={index: list(new.replicas) for index, new in partitions.items()},
                removing={index: list(new.removing) for index, new in partitions.items()},
            )
        case facts.QuarantineRead(problems=problems):
            log.info("topics in quarantine", problems=dict(problems))
        case facts.LinkProblemsRead(problems=problems):
            log.info("links in quarantine", problems=dict(problems))
        case facts.LinkStored(link=link):
            log.info("link", link=link.name, link_epoch=link.epoch, active_site=link.active_site, phase=link.phase)
        case facts.TopicDeleted(topic=topic):
            log.info("topic deleted", topic=topic)
        case facts.ClientQuotaReplaced(entity=entity, values=values):
            log.info("client quota", entity=dict(entity), quotas=dict(values))
        case facts.ScramUserReplaced(user=user, credentials=credentials):
            log.info("scram credentials", user=user, mechanisms=sorted(credentials))
        case facts.AclsReplaced(pattern=pattern, entries=entries):
            log.info("ACLs", resource=str(pattern), acls=[str(Acl(pattern, entry)) for entry in sorted(entries)])
        case facts.DelegationTokenReplaced(token_id=token_id, token=token):
            log.info("delegation token", token_id=token_id, owner="" if token is None else str(token.owner))
        case facts.GroupConfigsReplaced(group=group, configs=configs):
            log.info("group configs", group=group, configs=dict(configs))
        case _:
            pass
