"""Checks a topic's name, size and placement: the errors that a client gets, with Kafka's codes and
messages.

Every check returns None or a `Refusal`; accepted requests are carried out elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from kio.schema.errors import ErrorCode
from msgspec import Struct

from controller.core.link_claims import LinkClaim, claim_refusal
from controller.core.state.cluster import Cluster
from controller.core.state.site_values import Topic
from wire.rules.links import SiteRole, is_stand_in, role_of
from wire.rules.topic_config_kinds import InvalidTopicConfig
from wire.rules.topic_configs import check_overrides
from wire.rules.topic_names import CLUSTER_METADATA_TOPIC
from wire.znodes.config_znodes import encode_topic_config
from wire.znodes.documents import NODE_BYTES_MAX
from wire.znodes.topic_znodes import encode_topic

TOPIC_NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Refusal(Struct, frozen=True):
    """The reason why a request is refused."""

    error: ErrorCode
    message: str


def check_name(name: str) -> Refusal | None:
    """A legal topic name: letters, digits, `.`, `_`, `-`, at most 249 of them, not `.` or `..`."""
    problem = ""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = "'.' or '..' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem:
        return Refusal(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}")
    if name == CLUSTER_METADATA_TOPIC:
        return Refusal(
            ErrorCode.invalid_request,
            f"Topic '{name}' cannot be created: the name is reserved for Kafka's controllers.",
        )
    return None


def check_collision(name: str, existing: Iterable[str]) -> Refusal | None:
    """Refuse a name that differs from an existing one only in `.` and `_`: both would share metric
    names.
    """
    flattened = name.replace(".", "_")
    colliding = sorted(other for other in existing if other != name and other.replace(".", "_") == flattened)
    if not colliding:
        return None
    return Refusal(
        ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topics: {', '.join(colliding)}"
    )


def check_absent(cluster: Cluster, name: str) -> Refusal | None:
    """Refuse a topic that exists, or whose deletion is not complete."""
    if cluster.is_deleting(name):
        return Refusal(ErrorCode.topic_already_exists, f"Topic '{name}' is marked for deletion.")
    if name in cluster.topics:
        return Refusal(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    if name in cluster.quarantine:
        return Refusal(ErrorCode.topic_already_exists, _quarantined(cluster, name))
    return None


def check_present(cluster: Cluster, name: str) -> Refusal | None:
    """Refuse a topic that does not exist, is being deleted, or is in quarantine."""
    if name in cluster.topics and not cluster.is_deleting(name):
        return None
    if name in cluster.quarantine:
        return Refusal(ErrorCode.unknown_topic_or_partition, _quarantined(cluster, name))
    return Refusal(ErrorCode.unknown_topic_or_partition, f"topic {name!r} does not exist")


def _quarantined(cluster: Cluster, name: str) -> str:
    return f"Topic '{name}' is in quarantine until its znodes are repaired: {cluster.quarantine[name]}"


def check_link(cluster: Cluster, name: str, claim: LinkClaim) -> Refusal | None:
    """Only the mirror of a link, at the link's epoch, changes the link's topics at the site that is
    passive for them.
    """
    link = cluster.link_of(name)
    role = SiteRole.ACTIVE if link is None else role_of(link, cluster.rules.site)
    if claim.link:
        if link is None or link.name != claim.link:
            return _violation(f"link '{claim.link}' does not carry topic '{name}' here")
        refusal = claim_refusal(claim, link, site=cluster.rules.site, what=f"topic '{name}'")
        return _violation(refusal) if refusal else None
    if link is None or role is SiteRole.ACTIVE:
        return None
    if role is SiteRole.FENCED:
        return _violation(f"link '{link.name}' is fenced for a failover; topic '{name}' cannot be changed now")
    if is_stand_in(link):
        return _violation(
            f"topic '{name}' cannot be changed while link '{link.name}' cannot be decoded: it may carry the topic"
        )
    return _violation(
        f"topic '{name}' is mirrored here by link '{link.name}' from site '{link.active_site}'; change it there"
    )


def _violation(message: str) -> Refusal:
    return Refusal(ErrorCode.policy_violation, message)


def check_configs(configs: Mapping[str, str]) -> Refusal | None:
    """Refuse unknown names, values that are not accepted, and more text than a node holds."""
    try:
        check_overrides(configs)
    except InvalidTopicConfig as error:
        return Refusal(ErrorCode.invalid_config, str(error))
    size = len(encode_topic_config(configs))
    if size > NODE_BYTES_MAX:
        message = f"The configs would take {size} bytes; ZooKeeper keeps at most {NODE_BYTES_MAX}."
        return Refusal(ErrorCode.invalid_config, message)
    return None


def check_partition_count(count: int, *, maximum: int) -> Refusal | None:
    """Refuse a count below one, or above what one request may ask for."""
    if 0 < count <= maximum:
        return None
    code = ErrorCode.invalid_partitions if count <= 0 else ErrorCode.policy_violation
    return Refusal(code, f"{count} new partitions; accepted are 1 to {maximum} in one request")


def check_stored_size(
    after: Topic, *, before: Topic | None = None, error: ErrorCode = ErrorCode.invalid_partitions
) -> Refusal | None:
    """Refuse an assignment that takes more bytes than a node holds, unless it does not grow."""
    size = len(encode_topic(after.stored()))
    if size <= NODE_BYTES_MAX or (before is not None and size <= len(encode_topic(before.stored()))):
        return None
    return Refusal(
        error,
        f"The assignment of topic '{after.name}' would take {size} bytes; ZooKeeper keeps at most {NODE_BYTES_MAX}.",
    )


def check_replication_factor(cluster: Cluster, factor: int) -> Refusal | None:
    """Refuse a factor below one, above the number of living brokers, or above what the site
    supports.
    """
    problem = ""
    if factor <= 0:
        problem = "Replication factor must be larger than 0."
    elif factor > len(cluster.brokers):
        problem = f"Replication factor: {factor} larger than available brokers: {len(cluster.brokers)}."
    elif factor > cluster.rules.replication_factor_max:
        problem = (
            f"Replication factor: {factor} larger than this site supports: {cluster.rules.replication_factor_max}."
        )
    return Refusal(ErrorCode.invalid_replication_factor, problem) if problem else None


def check_assignment(
    cluster: Cluster,
    assignment: Sequence[tuple[int, tuple[int, ...]]],
    *,
    first_partition: int,
    replication_factor: int,
) -> Refusal | None:
    """A manual assignment: partitions in a row, equally many replicas each, no duplicates, on
    living brokers.

    `replication_factor` 0 takes that of the first partition listed.
    """
    problem = _assignment_problem(
        cluster.brokers, assignment, first_partition=first_partition, replication_factor=replication_factor
    )
    if problem:
        return Refusal(ErrorCode.invalid_replica_assignment, problem)
    return check_replication_factor(cluster, len(assignment[0][1])) if assignment else None


def _assignment_problem(
    live: Collection[int],
    assignment: Sequence[tuple[int, tuple[int, ...]]],
    *,
    first_partition: int,
    replication_factor: int,
) -> str:
    partitions = sorted(partition for partition, _ in assignment)
    if partitions != list(range(first_partition, first_partition + len(assignment))):
        return f"partitions must be numbered in a row from {first_partition}, without duplicates; found {partitions}"
    expected = replication_factor or len(assignment[0][1])
    for partition, replicas in assignment:
        if not replicas:
            return f"partition {partition} has no replicas"
        if len(set(replicas)) != len(replicas):
            return f"partition {partition} names a broker twice: {list(replicas)}"
        if len(replicas) != expected:
            return f"partition {partition} has {len(replicas)} replicas where {expected} are needed"
        unknown = sorted(set(replicas) - set(live))
        if unknown:
            return f"partition {partition} names brokers that are not alive: {unknown}"
    return ""
