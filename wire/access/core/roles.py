"""The methods of the control plane that each role may call, and the calls that change something.

Pure. `tests/unit/wire/access/test_roles.py` proves that every method of every `.proto` is here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class Role(enum.StrEnum):
    """The role of a caller of the control plane."""

    BROKER = "broker"
    """A broker process: broker, controller candidate and site agent, of this site or of a linked
    one.
    """
    MIRROR = "mirror"
    OPERATOR = "operator"
    VIEWER = "viewer"


class Caller(Struct, frozen=True):
    """A caller: its name for logs, and its role. `role` None: an authenticated caller without a
    role. `link`: the one link for which a mirror acts, empty if its certificate names none.
    """

    name: str
    role: Role | None
    link: str = ""

    def __str__(self) -> str:
        return f"{self.role or 'without a role'}/{self.name}"


ANONYMOUS: Final = Caller("anonymous", None)
"""A caller on a plaintext control plane, or one without a certificate and a token."""

_B, _M, _O, _V = Role.BROKER, Role.MIRROR, Role.OPERATOR, Role.VIEWER
_EVERY_ROLE: Final = frozenset(Role)


class Rule(Struct, frozen=True):
    """The rule of one method."""

    roles: frozenset[Role]
    is_change: bool = False
    """The method makes a change that an operator is responsible for: each call is audited."""
    is_open: bool = False
    """Callers without a role may call the method too, for health checks."""


def _read(*roles: Role) -> Rule:
    return Rule(frozenset(roles))


def _change(*roles: Role) -> Rule:
    return Rule(frozenset(roles), is_change=True)


_BROKER_CONTROL: Final[Mapping[str, Rule]] = {
    "Apply": _read(_B),
    "ConfirmLink": _read(_B),
    "UpdatePeerView": _read(_B),
    "PeerViewConfirmed": _read(_B),
    "DescribePartitions": _read(_B),
    "DescribeGroupOffsets": _read(_B),
    "DescribeGroupMembers": _read(_B),
    "TakeGroupMembers": _read(_B),
    "DescribeQuarantine": _read(_B),
    "Identify": _read(_B),
}
"""Calls of the site's controller and agents, which repeat constantly. The change that causes them
is audited; these calls are not.
"""
_CONTROLLER: Final[Mapping[str, Rule]] = {
    "CreateTopics": _change(_B, _M, _O),
    "DeleteTopics": _change(_B, _M, _O),
    "CreatePartitions": _change(_B, _M, _O),
    "AlterTopicConfigs": _change(_B, _M, _O),
    "AlterTopicConfigLists": _change(_B, _O),
    "AllocateProducerIds": _read(_B),
    "DescribeController": _read(_B, _O, _V),
    "AlterPartitions": _read(_B),
    "ControlledShutdown": _read(_B),
    "ReportOfflineReplicas": _read(_B),
    "ElectLeaders": _change(_B, _O),
    "AlterReassignments": _change(_B, _O),
    "ListReassignments": _read(_B, _O, _V),
    "AlterClientQuotas": _change(_B, _O),
    "AlterGroupConfigs": _change(_B, _O),
    "UnregisterBroker": _change(_B, _O),
    "AlterScramUsers": _change(_B, _O),
    "AlterAcls": _change(_B, _O),
    "AlterDelegationTokens": _change(_B, _O),
}
_SITE_AGENT: Final[Mapping[str, Rule]] = {
    "GetSiteView": _read(_B, _M, _O, _V),
    "ListLinks": _read(_B, _M, _O, _V),
    "SurveyLink": _read(_B, _O, _V),
    "CreateLink": _change(_O),
    "DeleteLink": _change(_O),
    "AdoptLink": _change(_B, _O),
    "AlterLink": _change(_O),
    "ConfirmLink": _change(_B, _O),
    "DescribeLink": _read(_B, _O, _V),
    "DescribeGroups": _read(_B, _O, _V),
    "ObserveLink": _read(_B, _O, _V),
    "DescribeGroupMembers": _read(_B, _O),
    "TakeGroupMembers": _change(_B, _O),
    "RecordFailover": _change(_B, _O),
    "ListFailovers": _read(_B, _O, _V),
    "RecordRehearsal": _change(_B, _O),
    # Not audited: a run repeats this call while its process lives, and its steps are audited.
    "RecordRun": _read(_B, _O),
    "GetSharedAccess": _read(_B, _M),
    "RecordSharedAccess": _read(_M),
    "RequestFailover": _change(_O),
    "GrantVow": _read(_B),
}
_MIRROR_ADMIN: Final[Mapping[str, Rule]] = {
    "DescribeMirror": _read(_B, _O, _V),
    "PauseMirror": _change(_O),
    "ResumeMirror": _change(_O),
    "VerifyMirror": _read(_O),
    "ResetTopics": _change(_O),
    "ReinstateCopies": _change(_O),
}
_HEALTH: Final = Rule(_EVERY_ROLE, is_open=True)
_SERVICES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "antipode.control.BrokerControl": _BROKER_CONTROL,
    "antipode.control.Controller": _CONTROLLER,
    "antipode.control.SiteAgent": _SITE_AGENT,
    "antipode.control.MirrorAdmin": _MIRROR_ADMIN,
    "grpc.health.v1.Health": {"Check": _HEALTH, "Watch": _HEALTH, "List": _HEALTH},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _read(_B, _O, _V)},
}
RULES: Final[Mapping[str, Rule]] = {
    f"/{service}/{method}": rule for service, methods in _SERVICES.items() for method, rule in methods.items()
}
"""The rule of each method, by its path as gRPC names it."""


class Verdict(enum.Enum):
    """The decision about a call."""

    ALLOWED = "allowed"
    UNAUTHENTICATED = "unauthenticated"
    DENIED = "denied"


class Decision(Struct, frozen=True):
    """A verdict and, for a refusal, one line for the caller."""

    verdict: Verdict
    reason: str = ""


_ALLOWED: Final = Decision(Verdict.ALLOWED)


def decide(caller: Caller, method: str, *, problem: str = "") -> Decision:
    """Decide if `caller` may call `method` (`/package.Service/Method`). `problem` is the reason why
    the caller is anonymous.
    """
    rule = RULES.get(method)
    # Before the checks of the caller: probes of a process's health have no certificate.
    if rule is not None and rule.is_open:
        return _ALLOWED
    needed = "no role" if rule is None else f"role {' or '.join(role for role in Role if role in rule.roles)}"
    what = method.rpartition("/")[2] or method
    if caller == ANONYMOUS:
        accepted = problem or "the caller shows no certificate and no token"
        return Decision(Verdict.UNAUTHENTICATED, f"{what} needs {needed}, and {accepted}")
    if rule is None:
        return Decision(Verdict.DENIED, f"{caller} may not call {what}: no role may")
    if caller.role is None or caller.role not in rule.roles:
        has = "has no role" if caller.role is None else f"has role {caller.role}"
        return Decision(Verdict.DENIED, f"{caller.name} {has} and may not call {what}, which needs {needed}")
    return _ALLOWED
