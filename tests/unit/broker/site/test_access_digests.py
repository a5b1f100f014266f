"""The digests that a fenced site gives of its access rules and configs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.site.access_digests import SiteAccess
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.access_digests import (
    ACLS,
    GROUP_CONFIGS,
    QUOTAS,
    TOKENS,
    TOPIC_CONFIGS,
    USERS,
    group_configs_digest,
    tokens_digest,
    topic_configs_digest,
)
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.principals import Principal
from wire.znodes.token_znodes import encode_token

ALICE = Principal("User", "alice")
TOKEN = DelegationToken("t", ALICE, ALICE, (), 0, 100, 1000)
RETENTION = {"retention.ms": "1000"}
SESSION = {"consumer.session.timeout.ms": "50000"}


def image(topics: Mapping[str, Mapping[str, str]], groups: Mapping[str, Mapping[str, str]]) -> ClusterImage:
    return ClusterImage(
        site="a",
        node_id=1,
        topics={
            name: TopicImage(name=name, topic_id=name.encode(), configs=configs, partitions={})
            for name, configs in topics.items()
        },
        group_configs=groups,
    )


def link(phase: LinkPhase.ValueType = LinkPhase.FENCED, *, active: str = "a") -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site=active,
        phase=phase,
        topic_whitelist=["orders.*"],
        group_whitelist=["orders.*"],
    )


def test_only_the_fenced_active_site_gives_digests() -> None:
    access = SiteAccess(lambda: image({}, {}), has_authorizer=False)
    assert access.fenced_digests(link(LinkPhase.MIRRORING)) is None
    assert access.fenced_digests(link(active="b")) is None
    given = access.fenced_digests(link())
    assert given is not None
    assert given.keys() == {QUOTAS, TOPIC_CONFIGS, GROUP_CONFIGS}
    with_authorizer = SiteAccess(lambda: image({}, {}), has_authorizer=True).fenced_digests(link())
    assert with_authorizer is not None
    assert with_authorizer.keys() == {ACLS, USERS, QUOTAS, TOPIC_CONFIGS, GROUP_CONFIGS}


def test_a_site_with_an_authorizer_and_a_secret_gives_a_digest_of_its_tokens_as_they_are() -> None:
    tokens = {"t": TOKEN}
    held = replace(image({}, {}), delegation_tokens=tokens)
    access = SiteAccess(lambda: held, has_authorizer=True, has_tokens=True)

    def digest() -> str:
        given = access.fenced_digests(link())
        assert given is not None
        return given[TOKENS]

    assert digest() == tokens_digest([("t", encode_token(TOKEN).decode())])
    held = replace(held, delegation_tokens={"t": TOKEN._replace(expires_at_ms=200)})
    assert digest() == tokens_digest([("t", encode_token(TOKEN._replace(expires_at_ms=200)).decode())])
    held = replace(held, delegation_tokens={})
    assert digest() == tokens_digest([])
    without = SiteAccess(lambda: held, has_authorizer=False, has_tokens=True).fenced_digests(link())
    assert without is not None
    assert TOKENS not in without, "no mirror reads them there"


def test_digests_of_configs_are_of_what_the_link_carries_and_brokers_describe() -> None:
    held = image(
        {"orders": {**RETENTION, "flavour": "mild"}, "boards": {"retention.ms": "1"}},
        {"orders-billing": {**SESSION, "flavour": "mild"}, "boards": SESSION},
    )
    access = SiteAccess(lambda: held, has_authorizer=False)
    given = access.fenced_digests(link())
    assert given is not None
    assert given[TOPIC_CONFIGS] == topic_configs_digest({"orders": RETENTION})
    assert given[GROUP_CONFIGS] == group_configs_digest({"orders-billing": SESSION})

    held = image({"orders": {"retention.ms": "2000"}}, {})
    changed = access.fenced_digests(link())
    assert changed is not None
    assert changed[TOPIC_CONFIGS] == topic_configs_digest({"orders": {"retention.ms": "2000"}})
    assert changed[GROUP_CONFIGS] == group_configs_digest({})
