"""Administration and clients at the passive site, with librdkafka's admin client that can reach no
broker but those there.

Promised: topics, partitions and configs of linked topics can be created, changed, described and
deleted through the passive site as through the active one, and the mirror copies the outcome back.
Writes against the roles are refused. If the active site does not answer, each request gets one
clear error within its time, and nothing changes on this side alone.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from kio.schema.errors import ErrorCode

from runtime.addresses import parse_host_port
from runtime.clock import SystemClock
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from wire.client.raw_client import KafkaClient, call_client
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.private import SITE_METADATA

pytestmark = pytest.mark.integration

WITHIN_S = 120
"""Each request is answered within this time, in any state of the active site."""
AT_HOME = "home-.*"
METADATA = 3
CREATE_TOPICS = 19
DELETE_TOPICS = 20

Result = TypeVar("Result")


class PassiveSite:
    """Sites a (active) and b; clients can reach b alone."""

    def __init__(self, sites: EmbeddedSites) -> None:
        self.sites = sites
        bootstraps = sites.put_clients_behind_proxies()
        sites.toxiproxy_server().get_proxy(f"{sites.broker('a').name}-client").disable()
        self.bootstrap = bootstraps["b"]
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        eventually_sync(lambda: sorted(self.admin.list_topics(timeout=30).brokers) == [1, 1001])

    def port(self, site: str) -> int:
        """The port of the site's broker itself."""
        return parse_host_port(self.sites.bootstrap(site)).port

    def partitions(self, site: str, topic: str) -> int:
        """The number of partitions that the site itself has; 0 if it does not have the topic."""
        with RawClient(self.port(site)) as client:
            (found,) = client.metadata(topic, api_key=SITE_METADATA).topics
            return len(found.partitions)

    def has_copy(self, topic: str) -> bool:
        """True if b has the topic, and its broker leads and reports it."""
        wanted = TopicToFetch(topic, None, [PartitionToFetch(0, 0, 1_000_000)])
        with RawClient(self.port("b")) as client:
            (found,) = client.fetch(FetchRequest([wanted], max_wait_ms=0, replica_id=-2)).topics[0].partitions
        return found.error_code == ErrorCode.none and self.partitions("b", topic) == 1

    def copy_configs(self, topic: str) -> Mapping[str, str | None]:
        """The configs that are set on b's own copy."""

        async def ask(client: KafkaClient) -> Mapping[str, str | None]:
            return (await client.topic_configs([topic]))[topic]

        return self._at_b(ask)

    def described(self, topic: str, name: str) -> str:
        """A config as b returns it to an application."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        value = self.admin.describe_configs([resource])[resource].result(WITHIN_S)[name].value
        assert isinstance(value, str)
        return value

    def asking_a(self, act: Callable[[], Result]) -> Result:
        """The act's result after a has answered b's request: on a busy machine b continues without
        an answer after a second or two.
        """
        while True:
            before = self.sites.unanswered_questions("b")
            try:
                outcome = act()
            except KafkaException:
                if self.sites.unanswered_questions("b") == before:
                    raise
            else:
                if self.sites.unanswered_questions("b") == before:
                    return outcome

    def create(self, topic: str, **settings: Any) -> None:
        """Create a topic through b."""
        answer(self.admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=-1, **settings)]))

    def create_at(self, site: str, topic: str) -> None:
        """Create a topic of one partition through the site's own broker."""
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        values = {"topics": [wanted], "timeout": timedelta(seconds=WITHIN_S), "validate_only": False}
        with RawClient(self.port(site)) as client:
            assert client.call(CREATE_TOPICS, 7, values).topics[0].error_code == ErrorCode.none

    def make_again(self, topic: str) -> None:
        """Delete the topic through a's own broker and create it again there, with one record."""
        with RawClient(self.port("a")) as client:
            values = {"topic_names": [topic], "timeout": timedelta(seconds=WITHIN_S)}
            assert client.call(DELETE_TOPICS, 5, values).responses[0].error_code == ErrorCode.none
        self.create_at("a", topic)
        records = batch([b"of the new one"], timestamp_ms=SystemClock().now_ms())  # an old one would soon be deleted
        with RawClient(self.port("a")) as client:
            eventually_sync(lambda: client.produce(topic, records).error_code == ErrorCode.none)

    def topic_id(self, site: str, topic: str) -> object:
        """The id of the site's own topic."""
        with RawClient(self.port(site)) as client:
            (found,) = client.metadata(topic, api_key=SITE_METADATA).topics
            return found.topic_id

    def is_the_same(self, topic: str) -> bool:
        """Both sites have the topic under one id, with its one record."""
        if self.topic_id("a", topic) != self.topic_id("b", topic):
            return False
        wanted = TopicToFetch(topic, None, [PartitionToFetch(0, 0, 1_000_000)])
        with RawClient(self.port("b")) as client:
            (partition,) = client.fetch(FetchRequest([wanted], max_wait_ms=0, replica_id=-2)).topics[0].partitions
            assert partition.high_watermark == 1, partition
            return True

    def reset(self, topic: str, *more: str) -> Any:
        """`antipode links reset`: its JSON for the one topic."""
        printed = self.sites.command("links", "reset", "a-b", "--topic", topic, "--output", "json", *more)
        assert printed.returncode == 0, printed.stderr
        (found,) = json.loads(printed.stdout)
        return found

    def alter(self, topic: str, name: str, value: str | None) -> None:
        """Set a config through b, or take it off."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        answer(self.admin.incremental_alter_configs([resource]))

    def grow(self, topic: str, total: int) -> None:
        """Give a topic so many partitions through b."""
        answer(self.admin.create_partitions([NewPartitions(topic, total)]))

    def delete(self, topic: str) -> None:
        """Delete a topic through b."""
        answer(self.admin.delete_topics([topic]))

    def _at_b(self, work: Callable[[KafkaClient], Awaitable[Result]]) -> Result:
        return call_client(self.bootstrap, work, site_local=True)


def answer(outcomes: Mapping[Any, Future[Any]]) -> None:
    """Wait for the one result. Raises KafkaException after a refusal, and TimeoutError without a
    response.
    """
    (outcome,) = outcomes.values()
    outcome.result(WITHIN_S)


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    """Kafka's name of the error that the act ends with, and its text."""
    with pytest.raises(KafkaException) as caught:
        act()
    error = caught.value.args[0]
    return error.name(), error.str()


@pytest.fixture(scope="module")
def passive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PassiveSite]:
    """One pair for all tests."""
    starter = SitesStarter(tmp_path_factory.mktemp("passive"))
    try:
        yield PassiveSite(starter("--blacklist", AT_HOME))
    finally:
        starter.end_all()


@pytest.fixture
def topic(passive: PassiveSite, request: pytest.FixtureRequest) -> str:
    """A topic of one partition that is at both sites."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    passive.create(name)
    eventually_sync(lambda: passive.has_copy(name))
    return str(name)


def test_a_topic_made_through_the_passive_site_is_made_at_the_active_one_and_mirrored(passive: PassiveSite) -> None:
    passive.create("orders", config={"retention.ms": "1234567"})
    assert passive.partitions("a", "orders") == 1
    assert passive.asking_a(lambda: passive.described("orders", "retention.ms")) == "1234567"
    eventually_sync(lambda: passive.partitions("b", "orders") == 1)
    eventually_sync(lambda: passive.copy_configs("orders") == {"retention.ms": "1234567"})


def test_a_refusal_by_the_active_site_reaches_the_client_unchanged(passive: PassiveSite, topic: str) -> None:
    assert refusal(lambda: passive.create(topic))[0] == "TOPIC_ALREADY_EXISTS"
    name, text = refusal(lambda: passive.create("wrong", config={"retention.ms": "soon"}))
    assert (name, "soon" in text, "retention.ms" in text) == ("INVALID_CONFIG", True, True)
    assert refusal(lambda: passive.delete("unheard-of"))[0] == "UNKNOWN_TOPIC_OR_PART"
    assert passive.partitions("a", "wrong") == 0


def test_a_topic_grown_through_the_passive_site_grows_at_both(passive: PassiveSite, topic: str) -> None:
    passive.grow(topic, 3)
    assert passive.partitions("a", topic) == 3
    eventually_sync(lambda: passive.partitions("b", topic) == 3)


def test_a_config_set_and_taken_off_through_the_passive_site_is_so_at_both(passive: PassiveSite, topic: str) -> None:
    passive.alter(topic, "retention.ms", "7654321")
    assert passive.asking_a(lambda: passive.described(topic, "retention.ms")) == "7654321"
    eventually_sync(lambda: passive.copy_configs(topic) == {"retention.ms": "7654321"})
    passive.alter(topic, "retention.ms", None)
    assert passive.asking_a(lambda: passive.described(topic, "retention.ms")) == "604800000"
    eventually_sync(lambda: passive.copy_configs(topic) == {})


def test_a_topic_deleted_through_the_passive_site_keeps_its_copy_until_it_is_deleted_again(
    passive: PassiveSite, topic: str
) -> None:
    passive.delete(topic)
    assert passive.partitions("a", topic) == 0
    assert passive.partitions("b", topic) == 1
    assert topic not in passive.asking_a(lambda: passive.admin.list_topics(timeout=30).topics)
    passive.delete(topic)
    assert passive.partitions("b", topic) == 0
    assert refusal(lambda: passive.delete(topic))[0] == "UNKNOWN_TOPIC_OR_PART"


def is_refused_as_ambiguous(passive: PassiveSite, topic: str) -> bool:
    assert refusal(lambda: passive.delete(topic))[0] in ("POLICY_VIOLATION", "UNKNOWN_TOPIC_OR_PART")
    ended = passive.sites.command("topics", "delete", topic, "--yes", "--bootstrap-server", passive.bootstrap)
    assert ended.returncode == 1
    return f"antipodelinksreseta-b--topic{topic};" in "".join(ended.stderr.split())  # long lines are folded


def test_a_topic_made_again_is_never_deleted_in_the_place_of_its_old_copy_which_is_put_away_when_asked(
    passive: PassiveSite, topic: str
) -> None:
    passive.make_again(topic)
    before = (passive.topic_id("a", topic), passive.topic_id("b", topic))
    eventually_sync(lambda: is_refused_as_ambiguous(passive, topic))
    assert (passive.topic_id("a", topic), passive.topic_id("b", topic)) == before
    eventually_sync(lambda: passive.reset(topic, "--dry-run")["outcome"] == "planned")
    assert passive.topic_id("b", topic) == before[1]
    assert passive.reset(topic, "--yes")["outcome"] == "put away"
    eventually_sync(lambda: passive.is_the_same(topic))
    assert passive.topic_id("a", topic) == before[0]

    def delete() -> None:
        if passive.partitions("a", topic):  # a former attempt may have been carried out
            passive.delete(topic)

    passive.asking_a(delete)
    assert passive.partitions("a", topic) == 0


def test_an_old_copy_is_deleted_by_its_id_through_the_passive_site(passive: PassiveSite, topic: str) -> None:
    passive.make_again(topic)
    live_id, copy_id = passive.topic_id("a", topic), passive.topic_id("b", topic)
    values = {"topics": [{"name": None, "topic_id": copy_id}], "timeout": timedelta(seconds=WITHIN_S)}

    def is_deleted() -> bool:
        with RawClient(passive.port("b")) as client:
            (result,) = client.call(DELETE_TOPICS, 6, values).responses
            return bool(result.error_code == ErrorCode.none)

    eventually_sync(is_deleted)
    eventually_sync(lambda: passive.is_the_same(topic))
    assert passive.topic_id("a", topic) == live_id


@pytest.mark.long
@pytest.mark.parametrize("victim", ["mirror", "broker", "broker while it is asked"])
def test_a_removed_copy_is_created_again_although_a_process_is_killed_in_between(
    passive: PassiveSite, topic: str, victim: str
) -> None:
    passive.make_again(topic)
    eventually_sync(lambda: passive.reset(topic, "--dry-run")["outcome"] == "planned")
    process = passive.sites.mirror if victim == "mirror" else passive.sites.broker("b")
    if victim == "broker while it is asked":
        asking = threading.Thread(target=lambda: passive.sites.command("links", "reset", "a-b", "-t", topic, "--yes"))
        asking.start()
        process.kill()
        asking.join()
    else:
        assert passive.reset(topic, "--yes")["outcome"] == "put away"
        process.kill()
    passive.sites.restart(process)

    def is_made_anew() -> bool:
        passive.sites.command("links", "reset", "a-b", "-t", topic, "--yes")  # refused once it is mirrored
        return passive.is_the_same(topic)

    eventually_sync(is_made_anew)


def test_topics_that_no_link_carries_are_the_passive_site_s_own(passive: PassiveSite) -> None:
    passive.create("home-lights")
    passive.grow("home-lights", 2)
    passive.alter("home-lights", "retention.ms", "5000")
    assert passive.described("home-lights", "retention.ms") == "5000"
    assert (passive.partitions("a", "home-lights"), passive.partitions("b", "home-lights")) == (0, 2)
    with RawClient(passive.port("b")) as client:
        assert client.produce("home-lights", batch()).error_code == ErrorCode.none
    passive.delete("home-lights")
    assert passive.partitions("b", "home-lights") == 0


def test_topics_that_no_link_carries_and_only_the_active_site_has_are_led_there(passive: PassiveSite) -> None:
    passive.create_at("a", "home-office")
    with RawClient(passive.port("b")) as client:
        found = passive.asking_a(lambda: client.metadata("home-office").topics[0])
        assert (found.error_code, found.partitions[0].leader_id) == (ErrorCode.none, 1)
        assert client.produce("home-office", batch()).error_code in (
            ErrorCode.not_leader_or_follower,
            ErrorCode.unknown_topic_or_partition,  # until a's view is here
        )
    eventually_sync(lambda: "home-office" in passive.admin.list_topics(timeout=30).topics)
    assert refusal(lambda: passive.create("home-office"))[0] == "TOPIC_ALREADY_EXISTS"
    passive.grow("home-office", 3)
    assert (passive.partitions("a", "home-office"), passive.partitions("b", "home-office")) == (3, 0)
    passive.delete("home-office")
    assert passive.partitions("a", "home-office") == 0


def test_a_topic_just_made_at_the_active_site_is_known_at_the_passive_one_at_once(passive: PassiveSite) -> None:
    with RawClient(passive.port("b")) as client:
        names = (f"just-made-{number}" for number in count())

        def just_made() -> Any:
            name = next(names)
            passive.create_at("a", name)
            return client.metadata(name).topics[0]

        for _ in range(3):
            found = passive.asking_a(just_made)
            assert (found.error_code, found.partitions[0].leader_id) == (ErrorCode.none, 1)


def test_a_topic_just_made_at_the_active_site_is_known_by_its_id_at_the_passive_one_at_once(
    passive: PassiveSite,
) -> None:
    with RawClient(passive.port("b")) as at_b, RawClient(passive.port("a")) as at_a:
        names = (f"just-made-with-id-{number}" for number in count())

        def just_made() -> tuple[str, Any]:
            name = next(names)
            passive.create_at("a", name)
            topic_id = at_a.metadata(name).topics[0].topic_id
            asked = {"topics": [{"name": "", "topic_id": topic_id}], "include_topic_authorized_operations": False}
            return name, at_b.call(METADATA, 12, {**asked, "allow_auto_topic_creation": False}).topics[0]

        for _ in range(3):
            name, found = passive.asking_a(just_made)
            leader = found.partitions[0].leader_id
            assert (found.error_code, found.name, leader) == (ErrorCode.none, name, 1)


def test_a_request_about_topics_of_both_sites_is_answered_by_both(passive: PassiveSite) -> None:
    names = ("home-mixed", "mixed")
    made = passive.admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=-1) for name in names])
    assert {name: made[name].result(WITHIN_S) for name in names} == dict.fromkeys(names)
    grown = passive.admin.create_partitions([NewPartitions(name, 2) for name in names])
    assert {name: grown[name].result(WITHIN_S) for name in names} == dict.fromkeys(names)
    assert [passive.partitions(site, name) for site, name in (("a", "mixed"), ("b", "home-mixed"))] == [2, 2]
    assert passive.partitions("a", "home-mixed") == 0
    entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry]) for name in names]
    for altered in passive.admin.incremental_alter_configs(resources).values():
        altered.result(WITHIN_S)
    described = passive.asking_a(lambda: passive.admin.describe_configs(resources))
    assert {found.result(WITHIN_S)["retention.ms"].value for found in described.values()} == {"5000"}
    deleted = passive.admin.delete_topics(list(names))
    assert {name: deleted[name].result(WITHIN_S) for name in names} == dict.fromkeys(names)
    assert (passive.partitions("a", "mixed"), passive.partitions("b", "home-mixed")) == (0, 0)


def test_records_sent_straight_to_the_passive_site_are_refused_and_so_are_readers(
    passive: PassiveSite, topic: str
) -> None:
    wanted = TopicToFetch(topic, None, [PartitionToFetch(0, 0, 1_000_000)])
    with RawClient(passive.port("b")) as client:
        assert client.produce(topic, batch()).error_code == ErrorCode.not_leader_or_follower
        (partition,) = client.fetch(FetchRequest([wanted], max_wait_ms=0)).topics[0].partitions
        assert partition.error_code == ErrorCode.not_leader_or_follower
        tool = FetchRequest([wanted], max_wait_ms=0, replica_id=-2)
        (partition,) = client.fetch(tool).topics[0].partitions
        assert (partition.error_code, partition.high_watermark) == (ErrorCode.none, 0)
    with RawClient(passive.port("a")) as client:
        assert client.produce(topic, batch()).error_code == ErrorCode.none


def test_while_the_active_site_cannot_be_reached_changes_are_refused_and_reads_are_answered_by_the_copy(
    passive: PassiveSite, topic: str
) -> None:
    passive.alter(topic, "retention.ms", "4321000")
    eventually_sync(lambda: passive.copy_configs(topic) == {"retention.ms": "4321000"})
    with passive.sites.cut_off():
        for act in (
            lambda: passive.create("refused"),
            lambda: passive.grow(topic, 2),
            lambda: passive.alter(topic, "retention.ms", "1000"),
        ):
            name, text = refusal(act)
            assert name == "POLICY_VIOLATION"
            assert "carried by link a-b, whose active site is a" in text
            assert "could not reach it" in text
        assert refusal(lambda: passive.delete(topic))[0] == "POLICY_VIOLATION"
        assert passive.described(topic, "retention.ms") == "4321000"
    assert (passive.partitions("a", "refused"), passive.partitions("b", "refused")) == (0, 0)
    assert (passive.partitions("a", topic), passive.partitions("b", topic)) == (1, 1)
    eventually_sync(lambda: _grows(passive, topic))


def _grows(passive: PassiveSite, topic: str) -> bool:
    try:
        passive.grow(topic, 2)
    except KafkaException:  # also if a did so before, and b did not get the report in time
        return passive.partitions("a", topic) == 2
    return True


def test_an_active_site_that_swallows_every_byte_is_answered_for_in_time(passive: PassiveSite, topic: str) -> None:
    network = passive.sites.network
    network.cut(network.selected(), is_silent=True)
    try:
        assert refusal(lambda: passive.grow(topic, 2))[0] == "POLICY_VIOLATION"
        assert passive.described(topic, "retention.ms") == "604800000"
    finally:
        network.heal()
    eventually_sync(lambda: _grows(passive, topic))
