"""The audit lines of Kafka's admin requests: the requests that change something, and their
subjects.

Values are left out: those of configs may be secrets, and those of SCRAM users are. The authorizer's
own log has the decisions (denied operations of every request).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.metadata.request_context import RequestContext
from broker.network.answered_errors import errors_in
from runtime.security.audit import ALLOWED, DENIED, FAILED, NAMES_SHOWN, audit
from wire.protocol.messages.access_change_messages import STANDBY_RULES
from wire.protocol.messages.batch_replacement_messages import REPLACE_BATCHES
from wire.protocol.messages.delegation_token_messages import DELEGATION_TOKENS
from wire.protocol.messages.private import PRIVATE_NAMES
from wire.protocol.messages.quarantine_messages import DELETE, QUARANTINE, QUARANTINE_RECORDS
from wire.protocol.messages.scram_user_messages import SCRAM_USERS

_REFUSALS: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.delegation_token_authorization_failed,
    }
)
_RESOURCES: Final = {2: "topic", 3: "group", 4: "broker", 5: "cluster", 8: "broker-logger", 32: "group"}
"""Types of resources in AlterConfigs; the two of ACLs below differ in some numbers."""
_ACL_RESOURCES: Final = {
    1: "any",
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional-id",
    6: "delegation-token",
    7: "user",
}

Subjects = Callable[[Any], dict[str, str]]


def _joined(names: Iterable[object]) -> str:
    found = [str(name) for name in names]
    more = len(found) - NAMES_SHOWN
    return ",".join(found[:NAMES_SHOWN]) + (f",... ({len(found)} in all)" if more > 0 else "")


def _topics(request: Any) -> dict[str, str]:
    if hasattr(request, "topic_names"):
        return {"topics": _joined(request.topic_names)}
    return {"topics": _joined(topic.name or getattr(topic, "topic_id", "") for topic in request.topics)}


def _moved(request: Any) -> dict[str, str]:
    return {"topics": _joined(topic.name for directory in request.dirs for topic in directory.topics)}


def _elected(request: Any) -> dict[str, str]:
    topics = request.topic_partitions
    return {"topics": "all" if topics is None else _joined(topic.topic for topic in topics)}


def _resources(request: Any) -> dict[str, str]:
    shown = (
        f"{_RESOURCES.get(int(one.resource_type), one.resource_type)}:{one.resource_name}" for one in request.resources
    )
    keys = sorted({config.name for one in request.resources for config in one.configs})
    return {"resources": _joined(shown), "configs": _joined(keys)}


def _quotas(request: Any) -> dict[str, str]:
    return {"resources": _joined(_quota_entity(entry.entity) for entry in request.entries)}


def _quota_entity(entity: Iterable[Any]) -> str:
    return "/".join(
        f"{part.entity_type}={'<default>' if part.entity_name is None else part.entity_name}" for part in entity
    )


def _created_acls(request: Any) -> dict[str, str]:
    created = request.creations
    return {
        "principals": _joined(dict.fromkeys(one.principal for one in created)),
        "resources": _joined(_acl_resource(one.resource_type, one.resource_name) for one in created),
    }


def _deleted_acls(request: Any) -> dict[str, str]:
    filters = request.filters
    return {
        "principals": _joined(dict.fromkeys(one.principal_filter or "any" for one in filters)),
        "resources": _joined(
            _acl_resource(one.resource_type_filter, one.resource_name_filter or "any") for one in filters
        ),
    }


def _acl_resource(kind: int, name: str) -> str:
    return f"{_ACL_RESOURCES.get(int(kind), kind)}:{name}"


def _scram_users(request: Any) -> dict[str, str]:
    return {"users": _joined(dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions)))}


def _quarantine(request: Any) -> dict[str, str]:
    return {"quarantine": request.name}


def _standby_rules(request: Any) -> dict[str, str]:
    resources = [_acl_resource(one.resource_type, one.resource_name) for one in request.acls]
    resources += [_quota_entity(one.entity) for one in request.quotas]
    resources += [f"group:{one.group}" for one in request.group_configs]
    return {
        "link": request.link,
        "principals": _joined(dict.fromkeys(one.principal for one in request.acls)),
        "resources": _joined(dict.fromkeys(resources)),
        "configs": _joined(sorted({one.name for one in request.group_configs})),
    }


def _mirrored_users(request: Any) -> dict[str, str]:
    return {"link": request.link, "users": _joined(dict.fromkeys(one.name for one in request.users))}


def _mirrored_tokens(request: Any) -> dict[str, str]:
    return {"link": request.link, "resources": _joined(f"delegation-token:{one.token_id}" for one in request.tokens)}


def _unnamed(_request: Any) -> dict[str, str]:
    return {}


AUDITED: Final[Mapping[int, tuple[str, Subjects]]] = {
    19: ("CreateTopics", _topics),
    20: ("DeleteTopics", _topics),
    21: ("DeleteRecords", _topics),
    30: ("CreateAcls", _created_acls),
    31: ("DeleteAcls", _deleted_acls),
    33: ("AlterConfigs", _resources),
    34: ("AlterReplicaLogDirs", _moved),
    37: ("CreatePartitions", _topics),
    38: ("CreateDelegationToken", _unnamed),
    39: ("RenewDelegationToken", _unnamed),
    40: ("ExpireDelegationToken", _unnamed),
    42: ("DeleteGroups", lambda request: {"groups": _joined(request.groups_names)}),
    43: ("ElectLeaders", _elected),
    44: ("IncrementalAlterConfigs", _resources),
    45: ("AlterPartitionReassignments", _topics),
    47: ("OffsetDelete", lambda request: {"groups": request.group_id, **_topics(request)}),
    49: ("AlterClientQuotas", _quotas),
    51: ("AlterUserScramCredentials", _scram_users),
    57: ("UpdateFeatures", lambda request: {"resources": _joined(one.feature for one in request.feature_updates)}),
    64: ("UnregisterBroker", lambda request: {"broker": str(request.broker_id)}),
    SCRAM_USERS: ("ScramUsers", _mirrored_users),
    DELEGATION_TOKENS: ("DelegationTokens", _mirrored_tokens),
    STANDBY_RULES: ("StandbyRules", _standby_rules),
    QUARANTINE: ("DeleteQuarantine", _quarantine),
    QUARANTINE_RECORDS: ("QuarantineRecords", lambda request: {"link": request.link}),
    REPLACE_BATCHES: (
        "ReplaceBatches",
        lambda request: {"topics": _joined(dict.fromkeys(one.topic for one in request.partitions))},
    ),
}
"""The audited operations by API key: the name in the log, and the function that finds the subjects
in the request.
"""


def audit_request(context: RequestContext, request: Any, answer: Any) -> None:
    """Write the line of a request that changes something, after it; of no other request."""
    known = AUDITED.get(context.api_key)
    if known is None or _only_reads(context.api_key, request):
        return
    operation, subjects = known
    errors = list(_errors(answer))
    audit(
        operation=operation,
        principal=str(context.principal),
        address=context.client_address,
        interface="kafka",
        outcome=_outcome(errors),
        reason=_joined(dict.fromkeys(_name(error) for error in errors)),
        listener=context.listener,
        client_id=context.client_id or "",
        is_dry_run="true" if getattr(request, "validate_only", False) else "",
        **subjects(request),
    )


def _only_reads(api_key: int, request: Any) -> bool:
    return (
        (api_key == QUARANTINE and request.action != DELETE)
        or (api_key == SCRAM_USERS and not request.users)
        or (api_key == DELEGATION_TOKENS and not request.tokens)
    )


def audit_refusal(context: RequestContext, request: Any, reason: str) -> None:
    """Write the line of a private request that is refused as a whole."""
    name = PRIVATE_NAMES[context.api_key]
    topics = [one for field in ("topics", "partitions") for one in getattr(request, field, None) or ()]
    audit(
        operation=name.title().replace("_", ""),
        principal=str(context.principal),
        address=context.client_address,
        interface="kafka",
        outcome=DENIED,
        reason=reason,
        listener=context.listener,
        client_id=context.client_id or "",
        link=str(getattr(request, "link", "")),
        topics=_joined(
            dict.fromkeys(filter(None, (getattr(one, "name", getattr(one, "topic", "")) for one in topics)))
        ),
    )


def _errors(answer: Any) -> Iterator[int]:
    if answer is None or isinstance(answer, bytes):
        return iter(())
    return errors_in(answer)


def _outcome(errors: Iterable[int]) -> str:
    found = set(errors)
    if found & _REFUSALS:
        return DENIED
    return FAILED if found else ALLOWED


def _name(error: int) -> str:
    try:
        return ErrorCode(error).name.upper()
    except ValueError:
        return str(error)
