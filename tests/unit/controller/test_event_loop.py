"""The active controller over a ZooKeeper in memory: changes of other tools, and its own at the same
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from controller.core import commands as ask
from controller.core.entity_commands import AlterAcls, AlterClientQuotas, QuotaChange
from controller.core.state.site_values import SiteRules
from controller.event_loop import ActiveController
from controller.metrics import ControllerMetrics
from controller.stored.cluster_reader import ClusterReader
from controller.stored.tenure import Tenure
from runtime.doors import ProcessDoors
from runtime.zookeeper.nodes import CreateNode
from tests.support.eventually import eventually
from tests.support.memory.memory_zookeeper import MemoryZooKeeper
from tests.support.memory.site_model import RULES, link_record, topic_request
from wire.protocol.ids import TopicPartition
from wire.rules.acls import AccessEntry, AclFilter, Operation, PatternType, Permission, ResourcePattern, ResourceType
from wire.znodes import layout as znodes
from wire.znodes.acl_znodes import ACL_CHANGES, ACL_PATHS, acl_path, encode_acls
from wire.znodes.broker_znodes import BrokerRegistration, encode_broker
from wire.znodes.cluster_znodes import encode_controller_epoch
from wire.znodes.config_znodes import client_quota_path, encode_topic_config
from wire.znodes.controller_znodes import EPOCH_RAISES, UNREGISTERED_BROKERS, epoch_raise_path
from wire.znodes.link_znodes import encode_link
from wire.znodes.token_znodes import TOKEN_PATHS

PATTERN = ResourcePattern(ResourceType.GROUP, "payments", PatternType.LITERAL)
USER_A = (("user", "a"),)
ENTRY = AccessEntry("User:former", "*", Operation.READ, Permission.ALLOW)
RETENTION = ask.ConfigChange(name="orders", set_configs={"retention.ms": "5"})
ALL_OF_PAYMENTS = AclFilter(
    resource_type=ResourceType.GROUP,
    name="payments",
    pattern_type=PatternType.LITERAL,
    principal=None,
    host=None,
    operation=Operation.ANY,
    permission=Permission.ANY,
)


async def site_in_memory() -> MemoryZooKeeper:
    """A ZooKeeper with the layout of a site, and one broker without an address."""
    zookeeper = MemoryZooKeeper()
    for path in (*znodes.PERSISTENT_PATHS, *ACL_PATHS, *TOKEN_PATHS, UNREGISTERED_BROKERS, EPOCH_RAISES):
        await zookeeper.ensure_path(path)
    await zookeeper.create(znodes.CONTROLLER_EPOCH, encode_controller_epoch(1))
    registration = BrokerRegistration(node_id=1, endpoints=(), grpc_address="")
    await zookeeper.create(znodes.broker_path(1), encode_broker(registration))
    return zookeeper


@asynccontextmanager
async def governed(zookeeper: MemoryZooKeeper, rules: SiteRules = RULES) -> AsyncIterator[ActiveController]:
    """A controller of the site that has taken over."""
    tenure = Tenure(controller_id=1, epoch=1, epoch_version=0)
    active = ActiveController(
        tenure=tenure,
        cluster=await ClusterReader(zookeeper).load(rules=rules, tenure=tenure),
        zookeeper=zookeeper,
        metrics=ControllerMetrics(CollectorRegistry()),
        doors=ProcessDoors(),
        deletion_retry_ms=10_000,
        apply_timeout_ms=1000,
    )
    running = asyncio.create_task(active.run())
    try:
        yield active
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_late_list_of_deletion_marks_deletes_no_topic_that_was_created_again() -> None:
    zookeeper = await site_in_memory()
    async with governed(zookeeper) as active:
        await active.submit(ask.CreateTopics(topics=(topic_request("orders"),)))
        former = active.cluster.topics["orders"].topic_id
        marks = zookeeper.hold(znodes.DELETE_TOPICS)
        await active.submit(ask.DeleteTopics(names=("orders",)))
        await eventually(lambda: marks.is_reached)
        broker = active.cluster.brokers[1]
        await active.submit(ask.DeletionsAnswered(node_id=1, broker_epoch=broker.epoch, topic_ids=(former,)))
        assert "orders" not in active.cluster.topics
        again = replace(topic_request("orders"), topic_id=bytes(16))
        await active.submit(ask.CreateTopics(topics=(again,)))
        marks.release()
        # a later mark is handled after the list that was read before
        await zookeeper.create(znodes.delete_topic_path("never-was"))
        await eventually(lambda: znodes.delete_topic_path("never-was") not in zookeeper.tree.nodes)
        assert not active.cluster.is_deleting("orders")


async def test_acls_that_were_read_late_do_not_bring_back_a_removed_one() -> None:
    zookeeper = await site_in_memory()
    await zookeeper.create(acl_path(PATTERN), encode_acls({ENTRY}), make_path=True)
    async with governed(zookeeper) as active:
        assert active.cluster.acls == {PATTERN: {ENTRY}}
        reading = zookeeper.hold(acl_path(PATTERN))
        await zookeeper.create(f"{ACL_CHANGES}/acl_changes_", is_sequence=True)
        await eventually(lambda: reading.is_reached)
        removal = asyncio.create_task(active.submit(AlterAcls(removals=(ALL_OF_PAYMENTS,))))
        for _ in range(100):
            await asyncio.sleep(0)
        reading.release()
        await removal
        await eventually(lambda: not zookeeper.tree.nodes[ACL_CHANGES].children)
        await active.submit(ask.RetryDeletions())
        assert acl_path(PATTERN) not in zookeeper.tree.nodes
        assert active.cluster.acls == {}


async def test_malformed_topics_that_appear_together_are_all_in_quarantine() -> None:
    zookeeper = await site_in_memory()
    async with governed(zookeeper) as active:
        # the controller is busy while both are found
        busy = zookeeper.hold(client_quota_path(USER_A))
        change = QuotaChange(entity=USER_A, set_values={"producer_byte_rate": 1.0})
        altered = asyncio.create_task(active.submit(AlterClientQuotas(changes=(change,))))
        await eventually(lambda: busy.is_reached)
        malformed = [CreateNode(path=znodes.topic_path(name), value=b"{}") for name in ("one", "two")]
        await zookeeper.transaction(malformed)
        for _ in range(100):
            await asyncio.sleep(0)
        busy.release()
        await altered
        await zookeeper.create(znodes.delete_topic_path("never-was"))
        await eventually(lambda: znodes.delete_topic_path("never-was") not in zookeeper.tree.nodes)
        assert active.cluster.quarantine.keys() == {"one", "two"}


async def test_a_mark_is_dropped_where_topics_may_not_be_deleted_also_if_the_controller_is_new() -> None:
    zookeeper = await site_in_memory()
    async with governed(zookeeper) as active:
        await active.submit(ask.CreateTopics(topics=(topic_request("orders"),)))
    await zookeeper.create(znodes.delete_topic_path("orders"))
    async with governed(zookeeper, replace(RULES, may_delete_topics=False)) as active:
        await eventually(lambda: znodes.delete_topic_path("orders") not in zookeeper.tree.nodes)
        assert not active.cluster.is_deleting("orders")
        assert znodes.topic_path("orders") in zookeeper.tree.nodes


async def test_a_topic_is_created_although_configs_of_a_former_one_were_left() -> None:
    zookeeper = await site_in_memory()
    await zookeeper.create(znodes.topic_config_path("orders"), encode_topic_config({"retention.ms": "1"}))
    async with governed(zookeeper) as active:
        await active.submit(ask.CreateTopics(topics=(topic_request("orders", configs={"retention.ms": "5"}),)))
        assert await active._reader.topic_configs("orders") == {"retention.ms": "5"}


@pytest.mark.parametrize("is_stored", [True, False])
async def test_configs_are_altered_although_another_tool_has_created_or_deleted_their_node(is_stored: bool) -> None:
    zookeeper = await site_in_memory()
    path = znodes.topic_config_path("orders")
    async with governed(zookeeper) as active:
        await active.submit(ask.CreateTopics(topics=(topic_request("orders"),)))
        await zookeeper.delete(path)
    async with governed(zookeeper) as active:
        if is_stored:
            await zookeeper.create(path, encode_topic_config({}))
        await active.submit(ask.AlterTopicConfigs(changes=(RETENTION,)))
        await zookeeper.delete(path)
        await active.submit(ask.AlterTopicConfigs(changes=(replace(RETENTION, set_configs={"retention.ms": "6"}),)))
        assert await active._reader.topic_configs("orders") == {"retention.ms": "6"}


async def test_a_malformed_raise_of_leader_epochs_is_replaced_by_the_one_that_follows_it() -> None:
    zookeeper = await site_in_memory()
    async with governed(zookeeper) as active:
        await active.submit(ask.CreateTopics(topics=(topic_request("orders.x"),)))
    floor = 1 << 20
    await zookeeper.create(epoch_raise_path(f"{floor}-0"), b"of another release")
    await zookeeper.create(znodes.link_path("b-a"), encode_link(link_record(active="a", epoch=2, floor=floor)))
    async with governed(zookeeper) as active:
        await eventually(lambda: active.cluster.leaderships[TopicPartition("orders.x", 0)].leader_epoch == floor)
        assert (await active._reader._epoch_raises()).keys() == {f"{floor}-0"}


async def test_a_user_loses_its_quotas_while_one_of_its_clients_gets_some() -> None:
    zookeeper = await site_in_memory()
    client_of_a = (*USER_A, ("client-id", "c"))
    async with governed(zookeeper) as active:
        given = QuotaChange(entity=USER_A, set_values={"producer_byte_rate": 1.0})
        await active.submit(AlterClientQuotas(changes=(given,)))
        lost = QuotaChange(entity=USER_A, remove=("producer_byte_rate",))
        other = QuotaChange(entity=client_of_a, set_values={"producer_byte_rate": 2.0})
        await active.submit(AlterClientQuotas(changes=(lost, other)))
        assert await active._reader.quotas() == {client_of_a: {"producer_byte_rate": 2.0}}


async def test_a_registration_with_an_impossible_port_is_ignored() -> None:
    zookeeper = await site_in_memory()
    async with governed(zookeeper) as active:
        await zookeeper.create(znodes.broker_path(2), b'{"version":5,"endpoints":["CLIENT://h:99999999999"]}')
        await zookeeper.create(
            znodes.broker_path(3), encode_broker(BrokerRegistration(node_id=3, endpoints=(), grpc_address=""))
        )
        await eventually(lambda: 3 in active.cluster.brokers)
        assert 2 not in active.cluster.brokers
