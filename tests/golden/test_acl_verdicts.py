"""Verdicts by ACLs, held against those of Apache Kafka's StandardAuthorizer on the same cases.

Kafka's verdicts are golden data; `python -m tests.golden.acls` asks Kafka again.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.authorization.core.acl_table import AclRules, AclTable, Requester
from tests.golden.acls import BY_TYPE, Case, acl_of, judged_cases
from tests.golden.acls.cases import all_cases
from wire.rules.acls import AccessEntry, Acl, Operation, ResourcePattern, ResourceType
from wire.rules.principals import parse_principal

CASES_MIN = 300


def acls_by_pattern(acls: Iterable[Acl]) -> dict[ResourcePattern, frozenset[AccessEntry]]:
    found: dict[ResourcePattern, frozenset[AccessEntry]] = {}
    for acl in acls:
        found[acl.pattern] = found.get(acl.pattern, frozenset()) | {acl.entry}
    return found


def is_allowed(case: Case) -> bool:
    rules = AclRules(
        AclTable(acls_by_pattern(map(acl_of, case.acls))),
        super_users=[name for name in case.super_users.split(";") if name],
        allows_everyone_without_acl=case.allows_everyone_without_acl,
    )
    requester = Requester(parse_principal(case.principal), case.host)
    operation, kind = Operation[case.operation], ResourceType[case.resource_type]
    if case.name == BY_TYPE:
        return rules.verdict_by_type(requester, operation, kind).is_allowed
    return rules.verdict(requester, operation, kind, case.name).is_allowed


def test_every_verdict_is_that_of_apache_kafka() -> None:
    differing = [case.text for case, allowed in judged_cases() if is_allowed(case) is not allowed]
    assert differing == []


def test_kafka_has_judged_every_case() -> None:
    judged = dict(judged_cases())
    assert set(judged) == set(all_cases())
    assert len(judged) >= CASES_MIN
    assert 0.2 < sum(judged.values()) / len(judged) < 0.8
