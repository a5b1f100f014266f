"""F10: topics are created and ACLs change while the sites change places. What a client was told is
done is at both sites afterwards, the same at each.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import site_client

pytestmark = pytest.mark.integration

AUTHORIZED = (
    "--broker-config",
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
    "--broker-config",
    "super.users=User:ANONYMOUS",
)
BETWEEN_MOVES = 3
"""Topics and ACLs that are made before the sites change places again."""
ANY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def acl_of(user: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        user,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


class Changes:
    """An operator who makes a topic and an ACL, and takes every second ACL away again, one after
    the other, at whichever broker the client asks. A change that fails is made again.
    """

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.topics: list[str] = []
        self.acls: list[str] = []
        self.removed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        """Until some more changes were confirmed."""
        wanted = len(self.removed) + BETWEEN_MOVES
        eventually_sync(lambda: len(self.removed) >= wanted)

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            name = f"made-{number}"
            if self._done(lambda name=name: self._admin.create_topics([NewTopic(name, 1, 1)]), exists=name):
                self.topics.append(name)
            for user in (name, f"gone-{number}"):
                if self._done(lambda user=user: self._admin.create_acls([acl_of(user)])):
                    self.acls.append(user)
            gone = self.acls[-1]
            if gone.startswith("gone") and self._done(lambda gone=gone: self._admin.delete_acls([_filter(gone)])):
                self.acls.remove(gone)
                self.removed.append(gone)

    def _done(self, change: Any, *, exists: str = "") -> bool:
        """Whether the change was confirmed before the end; that a topic exists is a confirmation
        whose answer was lost.
        """
        while not self._is_over.is_set():
            try:
                (outcome,) = change().values()
                assert isinstance(outcome, Future)
                outcome.result(60)
            except KafkaException as error:
                if exists and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return True
                continue
            return True
        return False


def _filter(user: str) -> AclBindingFilter:
    binding = acl_of(user)
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def principals(sites: EmbeddedSites, site: str) -> set[str]:
    """The users that have an ACL at a site."""
    admin = AdminClient({"bootstrap.servers": sites.bootstrap(site), "log_level": 2})
    return {acl.principal.removeprefix("User:") for acl in admin.describe_acls(ANY).result(60)}


async def topic_ids(sites: EmbeddedSites, site: str) -> dict[str, bytes]:
    """The ids of the topics that the site itself has."""
    async with site_client(sites.bootstrap(site)) as client:
        return {name: topic.topic_id.bytes for name, topic in (await client.metadata()).topics.items()}


def moved(sites: EmbeddedSites, to: str) -> None:
    done = sites.command("switchover", LINK, "--to", to, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["account"]["known_lost_records"] == 0


async def test_f10_topics_and_acls_that_change_during_moves_are_the_same_at_both_sites(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites(*AUTHORIZED)
    with Changes(f"{sites.bootstrap('a')},{sites.bootstrap('b')}") as changes:
        for to in "ba":
            changes.wait_for_more()
            moved(sites, to)
        changes.wait_for_more()
    made, allowed, removed = set(changes.topics), set(changes.acls), set(changes.removed)

    async def are_equal() -> bool:
        at_a, at_b = await topic_ids(sites, "a"), await topic_ids(sites, "b")
        assert made <= at_a.keys(), sorted(made - at_a.keys())
        assert {name: at_b.get(name) for name in made} == {name: at_a[name] for name in made}
        for site in "ab":
            found = principals(sites, site)
            assert allowed <= found, (site, "lacks", sorted(allowed - found))
            assert not removed & found, (site, "still has", sorted(removed & found))
        return True

    await eventually(are_equal)
    for name in sorted(made):
        librdkafka_produce(sites.bootstrap("b"), name, [Record(value=b"written")], settings={"acks": "all"})
    sites.stop()
