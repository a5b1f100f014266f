"""The table of roles: it has every method, and it decides which callers may call it."""

from __future__ import annotations

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from wire.access.core.roles import ANONYMOUS, RULES, Caller, Role, Verdict, decide
from wire.control import broker_pb2, controller_pb2, mirror_pb2, site_pb2

MODULES = (broker_pb2, controller_pb2, mirror_pb2, site_pb2, health_pb2, reflection_pb2)
SITE_AGENT = "/antipode.control.SiteAgent"


def test_every_method_of_every_service_is_in_the_table_and_no_other() -> None:
    there = {
        f"/{service.full_name}/{method.name}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    # Releases of grpcio-health-checking differ in whether they have List.
    assert set(RULES) - {"/grpc.health.v1.Health/List"} <= there <= set(RULES)


def test_operators_do_everything_that_people_do_and_viewers_change_nothing() -> None:
    for method, rule in RULES.items():
        if rule.is_change:
            assert Role.OPERATOR in rule.roles, method
            assert Role.VIEWER not in rule.roles, method
        if Role.VIEWER in rule.roles:
            assert Role.OPERATOR in rule.roles, method


def test_only_brokers_may_call_broker_control() -> None:
    for method, rule in RULES.items():
        if "BrokerControl" in method:
            assert rule.roles == {Role.BROKER}, method


@pytest.mark.parametrize(
    ("caller", "method", "verdict", "words"),
    [
        (Caller("ann", Role.OPERATOR), f"{SITE_AGENT}/DeleteLink", Verdict.ALLOWED, ()),
        (Caller("bob", Role.VIEWER), f"{SITE_AGENT}/ListLinks", Verdict.ALLOWED, ()),
        (
            Caller("bob", Role.VIEWER),
            f"{SITE_AGENT}/DeleteLink",
            Verdict.DENIED,
            ("bob", "role viewer", "DeleteLink", "role operator"),
        ),
        (
            Caller("m", Role.MIRROR),
            f"{SITE_AGENT}/AdoptLink",
            Verdict.DENIED,
            ("m has role mirror", "AdoptLink", "role broker or operator"),
        ),
        (Caller("CN=x", None), f"{SITE_AGENT}/ListLinks", Verdict.DENIED, ("CN=x", "no role", "viewer")),
        (ANONYMOUS, f"{SITE_AGENT}/ListLinks", Verdict.UNAUTHENTICATED, ("no certificate and no token", "viewer")),
        (ANONYMOUS, "/grpc.health.v1.Health/Check", Verdict.ALLOWED, ()),
        (Caller("ann", Role.OPERATOR), f"{SITE_AGENT}/Destroy", Verdict.DENIED, ("operator/ann", "Destroy")),
        (ANONYMOUS, "", Verdict.UNAUTHENTICATED, ()),
    ],
)
def test_refusals_name_the_caller_its_role_and_the_role_that_is_needed(
    caller: Caller, method: str, verdict: Verdict, words: tuple[str, ...]
) -> None:
    decision = decide(caller, method)
    assert decision.verdict is verdict
    assert all(word in decision.reason for word in words), decision.reason
