"""The audit lines of admin requests: none is forgotten, none has a secret."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.alter_user_scram_credentials.v0 import request as scram
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as configs
from kio.static.primitive import i8, i32
from structlog.testing import capture_logs

from broker.handlers.registry import load_handlers
from broker.metadata.request_context import RequestContext
from broker.network.admin_audit import AUDITED, audit_request
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.access_change_messages import STANDBY_RULES, StandbyRulesRequest, StandbyRulesResponse
from wire.protocol.messages.delegation_token_messages import DELEGATION_TOKENS
from wire.protocol.messages.private import PRIVATE_NAMES
from wire.protocol.messages.quarantine_messages import DELETE, LIST, QUARANTINE, QuarantineRequest, QuarantineResponse
from wire.protocol.messages.scram_user_messages import SCRAM_USERS
from wire.protocol.schemas import api_name, has_schema, request_type
from wire.rules.principals import Principal

CHANGES = ("create", "delete", "alter", "elect", "unregister", "update", "renew", "expire")


def said_of(api_key: int, request: Any, answer: Any) -> list[dict[str, Any]]:
    context = RequestContext(
        api_key=api_key,
        api_version=0,
        correlation_id=1,
        client_id="admin-1",
        listener="CLIENT",
        client_address="10.0.0.1",
        principal=Principal("User", "alice"),
    )
    with capture_logs() as lines:
        audit_request(context, request, answer)
    return list(lines)


def test_every_admin_api_that_changes_something_is_audited() -> None:
    named = {key: api_name(key) for key in load_handlers() if has_schema(key, 0) or has_schema(key, 1)}
    changing = {key for key, name in named.items() if name.startswith(CHANGES)}
    assert changing
    assert changing <= set(AUDITED)


def test_names_of_configs_are_in_the_line_and_values_are_not() -> None:
    request = configs.IncrementalAlterConfigsRequest(
        resources=(
            configs.AlterConfigsResource(
                resource_type=i8(4),
                resource_name="1",
                configs=(configs.AlterableConfig(name="ssl.key.password", config_operation=i8(0), value="hush"),),
            ),
        ),
        validate_only=False,
    )
    (line,) = said_of(44, request, None)
    assert line["event"] == "IncrementalAlterConfigs"
    assert (line["principal"], line["address"], line["outcome"]) == ("User:alice", "10.0.0.1", "allowed")
    assert (line["resources"], line["configs"]) == ("broker:1", "ssl.key.password")
    assert "hush" not in str(line)


def test_users_are_named_without_what_their_passwords_made() -> None:
    request = scram.AlterUserScramCredentialsRequest(
        deletions=(scram.ScramCredentialDeletion(name="bob", mechanism=i8(1)),),
        upsertions=(
            scram.ScramCredentialUpsertion(
                name="ann", mechanism=i8(2), iterations=i32(4096), salt=b"salt!", salted_password=b"salted!"
            ),
        ),
    )
    (line,) = said_of(51, request, None)
    assert line["users"] == "bob,ann"
    assert "salt" not in str(line)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (ErrorCode.none, "allowed", None),
        (ErrorCode.cluster_authorization_failed, "denied", "CLUSTER_AUTHORIZATION_FAILED"),
        (ErrorCode.resource_not_found, "failed", "RESOURCE_NOT_FOUND"),
    ],
)
def test_an_entry_that_is_deleted_from_quarantine_is_audited_with_its_outcome(
    error: ErrorCode, outcome: str, reason: str | None
) -> None:
    def asked(action: int) -> list[dict[str, Any]]:
        request = QuarantineRequest(action=i8(action), name="t-0-17", position=0)  # type: ignore[arg-type]
        return said_of(QUARANTINE, request, QuarantineResponse(error_code=error))

    assert asked(LIST) == []
    (line,) = asked(DELETE)
    assert (line["event"], line["quarantine"], line["outcome"]) == ("DeleteQuarantine", "t-0-17", outcome)
    assert line.get("reason") == reason


def test_rules_that_a_mirror_writes_at_the_standby_are_audited() -> None:
    request = build_entity(
        StandbyRulesRequest,
        {
            "link": "a-b",
            "link_epoch": 3,
            "acls": [
                {
                    "resource_type": 2,
                    "resource_name": "orders",
                    "resource_pattern_type": 3,
                    "principal": "User:bob",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                    "is_removal": True,
                }
            ],
            "quotas": [
                {
                    "entity": [{"entity_type": "user", "entity_name": None}],
                    "key": "producer_byte_rate",
                    "value": 1.0,
                    "is_removal": False,
                }
            ],
            "group_configs": [{"group": "billing", "name": "consumer.session.timeout.ms", "value": "50000"}],
        },
    )
    answer = StandbyRulesResponse(error_code=ErrorCode.policy_violation, error_message="not the standby")
    (line,) = said_of(STANDBY_RULES, request, answer)
    assert (line["event"], line["link"], line["outcome"]) == ("StandbyRules", "a-b", "failed")
    assert line["principals"] == "User:bob"
    assert line["resources"] == "topic:orders,user=<default>,group:billing"
    assert line["configs"] == "consumer.session.timeout.ms"


@pytest.mark.parametrize(
    ("api_key", "entries", "field", "shown"),
    [
        (SCRAM_USERS, {"users": [{"name": "bob", "mechanism": "SCRAM-SHA-256", "credential": "hush"}]}, "users", "bob"),
        (DELEGATION_TOKENS, {"tokens": [{"token_id": "t-1", "document": "hush"}]}, "resources", "delegation-token:t-1"),
    ],
    ids=["users", "tokens"],
)
def test_users_and_tokens_are_audited_when_a_mirror_writes_them_and_not_when_it_reads(
    api_key: int, entries: dict[str, Any], field: str, shown: str
) -> None:
    kind = request_type(api_key, 0)
    nothing: dict[str, Any] = dict.fromkeys(entries, ())
    assert said_of(api_key, build_entity(kind, {"link": "a-b", "link_epoch": 3, **nothing}), None) == []
    (line,) = said_of(api_key, build_entity(kind, {"link": "a-b", "link_epoch": 3, **entries}), None)
    assert line["event"] == PRIVATE_NAMES[api_key].title().replace("_", "")
    assert (line["link"], line[field], line["outcome"]) == ("a-b", shown, "allowed")
    assert "hush" not in str(line)
