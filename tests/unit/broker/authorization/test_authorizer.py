"""The authorizer over an image: settings, loading, changes, the audit log."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import structlog
from msgspec.structs import replace

from broker.authorization.authorizer import CLUSTER_ACTION, Authorizer, Check
from broker.authorization.core.mirror_scope import MirrorScope
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.request_context import FORWARDED_CLIENT_ID, RequestContext
from broker.settings.loading import load_broker_settings
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.protocol.messages.quarantine_messages import QUARANTINE
from wire.protocol.messages.topics_changed_messages import TOPICS_CHANGED
from wire.rules.acls import AccessEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from wire.rules.principals import Principal
from wire.znodes.acl_znodes import acls_message

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
WRITE_TXN_MARKERS = 27
READ_ORDERS = Check(Operation.READ, ResourceType.TOPIC, "orders")


def context(user: str, *, address: str = "10.0.0.1:50000") -> RequestContext:
    return RequestContext(
        api_key=1,
        api_version=12,
        correlation_id=1,
        client_id="c",
        listener="CLIENT",
        client_address=address,
        principal=Principal("User", user),
    )


class Site:
    """An image that changes, and the authorizer over it."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.image = ClusterImage(site="a", node_id=1)
        settings = load_broker_settings(
            {
                "node.id": "1",
                "listeners": "CLIENT://:0",
                "log.dirs": "none",
                "zookeeper.connect": "none:1",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:admin;User:CN=broker,O=a",
                **(properties or {}),
            }
        )
        self.authorizer = Authorizer(settings, lambda: self.image)

    def apply(self, *entries: AccessEntry, is_full: bool = False, resource: ResourcePattern = ORDERS) -> None:
        self.image = apply_batch(self.image, ControlBatch(is_full=is_full, acls=[acls_message(resource, entries)]))

    def may_read(self, user: str) -> bool:
        return self.authorizer.may(context(user), READ_ORDERS)


def entry(user: str, permission: Permission = Permission.ALLOW) -> AccessEntry:
    return AccessEntry(f"User:{user}", "*", Operation.READ, permission)


@pytest.mark.parametrize("allows_everyone", ["true", "false"])
def test_while_acls_are_not_loaded_only_super_users_pass(allows_everyone: str) -> None:
    site = Site({"allow.everyone.if.no.acl.found": allows_everyone})
    assert [site.may_read(user) for user in ("admin", "CN=broker,O=a", "alice")] == [True, True, False]
    site.apply(is_full=True)
    assert site.may_read("alice") is (allows_everyone == "true")
    site.apply(entry("bob"))
    assert [site.may_read(user) for user in ("alice", "bob", "admin")] == [False, True, True]


def test_a_remembered_verdict_ends_with_any_change() -> None:
    site = Site()
    site.apply(entry("alice"), is_full=True)
    assert site.may_read("alice")
    site.apply(entry("alice"), entry("*", Permission.DENY))
    assert not site.may_read("alice")
    site.apply()
    assert not site.may_read("alice")
    site.apply(entry("alice"))
    assert site.may_read("alice")


def test_an_image_without_news_of_acls_keeps_the_same_ones() -> None:
    site = Site()
    site.apply(entry("alice"), is_full=True)
    known = site.image.acls
    site.image = apply_batch(site.image, ControlBatch())
    assert site.image.acls is known
    site.apply(entry("alice"), is_full=True)
    assert site.image.acls is known


def test_the_audit_log_has_a_line_for_each_denial_and_none_for_filters() -> None:
    site = Site()
    site.apply(entry("bob"), is_full=True)
    checks = [READ_ORDERS, replace_name("payments"), replace_name("refunds")]
    with structlog.testing.capture_logs() as lines:
        assert len(site.authorizer.denied(context("alice"), checks)) == 3
        site.authorizer.denied(context("alice"), checks, is_logged=False)
    (line,) = [line for line in lines if line["log_level"] == "info"]
    assert line["event"] == "denied"
    shown = {
        name: line[name] for name in ("principal", "operation", "host", "resource_type", "count", "request", "rule")
    }
    assert shown == {
        "principal": "User:alice",
        "operation": "READ",
        "host": "10.0.0.1",
        "resource_type": "TOPIC",
        "count": 3,
        "request": "fetch",
        "rule": "DefaultDeny",
    }
    assert line["resources"] == ["orders", "payments", "refunds"]


def replace_name(name: str) -> Check:
    return READ_ORDERS._replace(name=name)


def test_authorized_operations_are_those_of_the_acls() -> None:
    site = Site()
    site.apply(entry("alice"), is_full=True)
    bits = site.authorizer.operations(context("alice"), ResourceType.TOPIC, "orders")
    assert bits == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert site.authorizer.operations(context("alice"), ResourceType.TOPIC, "payments") == 0


def test_operations_on_the_cluster_are_for_clients_that_may_describe_it() -> None:
    site, cluster = Site(), ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
    create = AccessEntry("User:alice", "*", Operation.CREATE, Permission.ALLOW)
    site.apply(create, is_full=True, resource=cluster)
    assert site.authorizer.operations(context("alice"), ResourceType.CLUSTER) == 0
    describe = AccessEntry("User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)
    site.apply(create, describe, is_full=True, resource=cluster)
    bits = site.authorizer.operations(context("alice"), ResourceType.CLUSTER)
    assert bits == 1 << Operation.CREATE | 1 << Operation.DESCRIBE


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.1:50000", "10.0.0.1"), ("::1:50000", "::1"), ("::ffff:10.0.0.1:50000", "10.0.0.1")],
)
def test_hosts_of_acls_are_addresses_without_a_port(address: str, host: str) -> None:
    site = Site()
    site.apply(AccessEntry("User:alice", host, Operation.READ, Permission.ALLOW), is_full=True)
    assert site.authorizer.may(context("alice", address=address), READ_ORDERS)
    assert not site.authorizer.may(context("alice", address="10.0.0.2:50000"), READ_ORDERS)


def test_a_listed_mirror_is_limited_to_its_link_whatever_the_acls_say() -> None:
    site = Site({"antipode.mirror.principals": "a-b=User:m;a-c = User:m; x-y=User:CN=n,O=z"})
    site.apply(entry("m"), entry("CN=n,O=z"), is_full=True)
    assert not site.may_read("m")
    link = LinkRecord(name="a-c", source_site="a", target_site="c", topic_whitelist=["orders"])
    site.image = apply_batch(site.image, ControlBatch(links=[link]))
    assert site.may_read("m")
    assert not site.may_read("CN=n,O=z")
    with structlog.testing.capture_logs() as lines:
        site.may_read("CN=n,O=z")
    assert lines[0]["rule"] == (
        "User:CN=n,O=z acts for link x-y alone (antipode.mirror.principals), which does not carry it"
    )


@pytest.mark.parametrize(
    ("api_key", "topic", "is_refused"),
    [
        (1, "__consumer_offsets", False),
        (MIRROR_APPEND, "", False),
        (QUARANTINE, "", True),
        (TOPICS_CHANGED, "", True),
        (WRITE_TXN_MARKERS, "", True),
        (1, "salaries", True),
    ],
)
def test_cluster_action_holds_for_the_requests_of_mirrors_alone(api_key: int, topic: str, is_refused: bool) -> None:
    scope = MirrorScope("User:m", frozenset({"a-b"}))
    kind, operation = (
        (ResourceType.TOPIC, Operation.READ) if topic else (ResourceType.CLUSTER, Operation.CLUSTER_ACTION)
    )
    refusal = scope.refusal(operation, kind, topic, api_key=api_key, carried_by=())
    assert (refusal is not None) is is_refused


def test_a_forwarded_request_of_a_listed_mirror_is_not_trusted() -> None:
    site = Site({"antipode.mirror.principals": "a-b=User:m"})
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
    action = AccessEntry("User:m", "*", Operation.CLUSTER_ACTION, Permission.ALLOW)
    site.image = apply_batch(site.image, ControlBatch(is_full=True, acls=[acls_message(cluster, [action])]))
    forwarded = replace(context("m"), client_id=FORWARDED_CLIENT_ID)
    assert site.authorizer.may(forwarded, CLUSTER_ACTION)
    assert not site.authorizer.may(forwarded, READ_ORDERS)
