"""The broker's authorizer: whether a request's principal may do something, with the audit log and
the counts of denials.

`core/acl_table.py` gives the verdicts from the ACLs of the newest image. They are cached until any
ACL changes, because produce and fetch need the same few verdicts for each request. Without
`authorizer.class.name` it is disabled, and callers pay only for reading `is_enabled`. A request
that a broker forwards for its client (`RequestContext.is_forwarded`) was authorized at that broker;
it is trusted only from a principal with ClusterAction.

The audit log (logger `broker.authorization`) has a line for each request and operation: denied at
INFO, allowed at DEBUG. Filters, such as those of a list of topics, are not logged as denials.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily

from broker.authorization.core.acl_table import AclRules, AclTable, Requester, Verdict
from broker.authorization.core.mirror_scope import MirrorScope
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.settings.config import BrokerSettings
from runtime.logs import get_logger
from wire.protocol.schemas import api_name
from wire.rules.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceAcls, ResourceType
from wire.rules.principals import Principal

VERDICTS_REMEMBERED_MAX: Final = 100_000
RESOURCES_SHOWN_MAX: Final = 20
"""The maximum number of names in one line of the audit log."""

log = get_logger("broker.authorization")
_levels = logging.getLogger("broker.authorization")


class Asking(Protocol):
    """The part of a request context that the authorizer uses."""

    @property
    def api_key(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def client_host(self) -> str: ...


class Check(NamedTuple):
    """An operation of a request on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str = CLUSTER_NAME


CLUSTER_ACTION: Final = Check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)


class Authorizer:
    """Decides which requests of a principal are allowed. `image` gives the newest image."""

    def __init__(self, settings: BrokerSettings, image: Callable[[], ClusterImage]) -> None:
        self.is_enabled = bool(settings.authorizer_class)
        self._settings = settings
        self._image = image
        self._scopes = {
            principal: MirrorScope(principal, links) for principal, links in settings.mirror_principals.items()
        }
        self._acls: ResourceAcls | None = None
        self._is_loaded = False
        self._rules = self._made_rules(AclTable({}))
        self._verdicts: dict[tuple[Principal, str, Check], Verdict] = {}
        self._denials: Counter[tuple[str, str]] = Counter()

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self._image()

    def _made_rules(self, table: AclTable) -> AclRules:
        return AclRules(
            table,
            super_users=self._settings.super_users,
            allows_everyone_without_acl=self._settings.allows_everyone_without_acl,
            is_loaded=self._is_loaded,
        )

    def _follow_image(self) -> None:
        image = self._image()
        if image.acls is self._acls and image.is_complete is self._is_loaded:
            return
        self._acls, self._is_loaded = image.acls, image.is_complete
        self._rules = self._made_rules(self._rules.table.following(image.acls))
        self._verdicts.clear()

    def verdict(self, context: Asking, check: Check) -> Verdict:
        """The verdict for the context's principal, without a line in the log."""
        self._follow_image()
        scope = self.mirror_scope(context)
        if scope is not None:
            carried_by = self.image.links_of(check.name) if check.resource_type is ResourceType.TOPIC else ()
            refusal = scope.refusal(*check, api_key=context.api_key, carried_by=carried_by)
            if refusal is not None:
                return refusal
        key = (context.principal, context.client_host, check)
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= VERDICTS_REMEMBERED_MAX:
                self._verdicts.clear()
            requester = Requester(context.principal, context.client_host)
            found = self._verdicts[key] = self._rules.verdict(requester, *check)
        return found

    def mirror_scope(self, context: Asking) -> MirrorScope | None:
        """The links to which a mirror's principal is limited; None if it is not limited."""
        return self._scopes.get(str(context.principal)) if self._scopes else None

    def trusts(self, context: Asking) -> bool:
        """True for a request that a broker forwards; never without an authorizer."""
        return (
            self.is_enabled
            and context.client_id == FORWARDED_CLIENT_ID
            and self.mirror_scope(context) is None
            and self.verdict(context, CLUSTER_ACTION).is_allowed
        )

    def may(self, context: Asking, check: Check, *, is_logged: bool = True) -> bool:
        """True if the principal may do it; without an authorizer, always. An allowed operation is
        logged only if `is_logged`; it is not checked twice.
        """
        if not self.is_enabled or (self.verdict(context, check).is_allowed and not _levels.isEnabledFor(logging.DEBUG)):
            return True
        return not self.denied(context, (check,), is_logged=is_logged)

    def may_cluster(self, context: Asking, operation: Operation, *, is_logged: bool = True) -> bool:
        """True if the principal may do the operation on the cluster."""
        return self.may(context, Check(operation, ResourceType.CLUSTER), is_logged=is_logged)

    def denied(self, context: Asking, checks: Collection[Check], *, is_logged: bool = True) -> set[Check]:
        """Return the checks that the principal does not pass. With `is_logged` false, a denial is
        part of a filter and is neither logged nor counted.
        """
        if not self.is_enabled or self.trusts(context):
            return set()
        verdicts = {check: self.verdict(context, check) for check in checks}
        denied = {check for check, verdict in verdicts.items() if not verdict.is_allowed}
        if is_logged:
            self._report(context, verdicts)
        return denied

    def may_replicate(self, context: Asking, topic: str) -> bool:
        """True if the principal may read the topic as a replica, a mirror or a tool does."""
        if self.mirror_scope(context) is None:
            return self.may(context, CLUSTER_ACTION)
        return not self.denied(context, (CLUSTER_ACTION, Check(Operation.DESCRIBE, ResourceType.TOPIC, topic)))

    def may_any(self, context: Asking, operation: Operation, resource_type: ResourceType) -> bool:
        """True if the principal may do it with at least one resource of the type (KIP-679)."""
        if not self.is_enabled or self.trusts(context):
            return True
        self._follow_image()
        requester = Requester(context.principal, context.client_host)
        verdict = self._rules.verdict_by_type(requester, operation, resource_type)
        self._report(context, {Check(operation, resource_type, "(any)"): verdict})
        return verdict.is_allowed

    def operations(self, context: Asking, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bit field of the operations that the principal may do with the resource (KIP-430); 0
        for the cluster if the principal may not describe it.
        """
        if resource_type is ResourceType.CLUSTER and not self.may_cluster(context, Operation.DESCRIBE, is_logged=False):
            return 0
        checks = [Check(operation, resource_type, name) for operation in OPERATIONS[resource_type]]
        denied = self.denied(context, checks, is_logged=False)
        return sum(1 << check.operation for check in checks if check not in denied)

    def _report(self, context: Asking, verdicts: dict[Check, Verdict]) -> None:
        groups: dict[tuple[bool, Operation, ResourceType, str], list[str]] = {}
        for check, verdict in verdicts.items():
            key = (verdict.is_allowed, check.operation, check.resource_type, verdict.rule)
            groups.setdefault(key, []).append(check.name)
        for (is_allowed, operation, resource_type, rule), names in groups.items():
            write = log.debug if is_allowed else log.info
            if not is_allowed:
                self._denials[operation.name, resource_type.name] += len(names)
            write(
                "allowed" if is_allowed else "denied",
                principal=str(context.principal),
                operation=operation.name,
                host=context.client_host,
                resource_type=resource_type.name,
                resources=names[:RESOURCES_SHOWN_MAX],
                count=len(names),
                request=api_name(context.api_key),
                rule=rule,
            )

    def metric_families(self) -> Iterator[CounterMetricFamily]:
        """Denials by operation and type of resource."""
        family = CounterMetricFamily(
            "antipode_broker_authorization_denials",
            "Denied checks of requests, by operation and type of resource",
            labels=["operation", "resource_type"],
        )
        for (operation, resource_type), count in sorted(self._denials.items()):
            family.add_metric([operation, resource_type], count)
        yield family


def topics(operation: Operation, names: Iterable[str]) -> list[Check]:
    """Checks of the same operation on several topics."""
    return [Check(operation, ResourceType.TOPIC, name) for name in names]
