"""A site's access rules and configs of groups in memory: the controller's decisions, and the
handlers of one broker that answer a client. The client is a `KafkaClient` for those who ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from broker.authentication.delegation_tokens import DelegationTokens
from broker.groups.core.group_turn import GroupLimits
from broker.handlers.configs import describe_client_quotas
from broker.handlers.configs.group_config_requests import GroupConfigRequests
from broker.handlers.links import delegation_tokens, scram_users, standby_rules
from broker.handlers.security import describe_acls
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.request_context import RequestContext
from controller.brokers.images import PendingChanges, TopicMessages
from controller.core import commands as ask
from controller.core.decisions import Decision
from controller.core.state.site_values import SiteRules
from controller.requests.entity_messages import (
    acl_changes,
    acl_results,
    entity_results,
    group_config_changes,
    quota_changes,
    scram_changes,
    token_changes,
)
from tests.support.clock import ManualClock
from tests.support.memory.site_model import SiteModel
from wire.control import controller_pb2 as pb
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME

NODE = 1
HANDLERS: Mapping[int, Any] = {
    module.API_KEY: module
    for module in (delegation_tokens, describe_acls, describe_client_quotas, scram_users, standby_rules)
}


class AccessSite:
    """One site with an authorizer that allows everything, and its one broker."""

    address = "broker:1"

    def __init__(self, name: str) -> None:
        self.model = SiteModel(SiteRules(site=name))
        self.model.alive(NODE)
        self.model.take_over()
        self.is_behind = False
        """The broker's image does not follow the controller."""
        self._image = ClusterImage(site=name, node_id=NODE)
        self._doors: Any = SimpleNamespace(
            active_site=None,
            authorizer=SimpleNamespace(is_enabled=True, may=lambda *_, **__: True, may_cluster=lambda *_, **__: True),
            cluster=self,
            controller=self,
            delegation_tokens=DelegationTokens("secret", ManualClock()),
            group_configs=GroupConfigRequests(
                self,  # type: ignore[arg-type]
                SimpleNamespace(group_bounds=GroupLimits().group_bounds),  # type: ignore[arg-type]
                self,  # type: ignore[arg-type]
                None,  # type: ignore[arg-type]
            ),
        )

    @property
    def image(self) -> ClusterImage:
        """The image of the broker."""
        if not self.is_behind:
            cluster = self.model.cluster
            epoch = cluster.brokers[NODE].epoch
            batch = PendingChanges(is_full=True, has_news=True).batch(
                cluster, node_id=NODE, broker_epoch=epoch, topics=TopicMessages()
            )
            self._image = apply_batch(self._image, batch)
        return self._image

    def adopt(self, link: LinkRecord) -> None:
        """Store the link's record: the controller knows it."""
        self.model.give(ask.LinksListed(links={link.name: link}))

    async def alter_acls(self, request: pb.AlterAclsRequest) -> pb.AlterAclsReply:
        """As the controller's service."""
        return pb.AlterAclsReply(results=acl_results(self._decide(acl_changes(request))))

    async def alter_client_quotas(self, request: pb.AlterClientQuotasRequest) -> pb.AlterClientQuotasReply:
        """As the controller's service."""
        return pb.AlterClientQuotasReply(results=entity_results(self._decide(quota_changes(request))))

    async def alter_scram_users(self, request: pb.AlterScramUsersRequest) -> pb.AlterScramUsersReply:
        """As the controller's service."""
        return pb.AlterScramUsersReply(results=entity_results(self._decide(scram_changes(request))))

    async def alter_delegation_tokens(self, request: pb.AlterDelegationTokensRequest) -> pb.AlterDelegationTokensReply:
        """As the controller's service."""
        return pb.AlterDelegationTokensReply(results=entity_results(self._decide(token_changes(request))))

    async def alter_group_configs(self, request: pb.AlterGroupConfigsRequest) -> pb.AlterGroupConfigsReply:
        """As the controller's service."""
        return pb.AlterGroupConfigsReply(results=entity_results(self._decide(group_config_changes(request))))

    async def wait_for(self, condition: Callable[[ClusterImage], bool], *, timeout_ms: float) -> bool:
        """As the broker's `Cluster`; the image follows the controller at once."""
        del timeout_ms
        return condition(self.image)

    def _decide(self, command: ask.Command) -> Decision:
        return self.model.give(command)

    async def metadata(self, _topics: Any) -> Any:
        """The broker is the controller."""
        return SimpleNamespace(controller_id=NODE)

    async def connection(self, _node: int) -> AccessSite:
        """The connection to the broker."""
        return self

    async def call(self, api_key: int, values: Mapping[str, Any], *, timeout_ms: float | None = None) -> Any:
        """The broker's answer to one of Antipode's own programs."""
        del timeout_ms
        module = HANDLERS[api_key]
        version = module.MAX_VERSION
        context = RequestContext(
            api_key=api_key,
            api_version=version,
            correlation_id=1,
            client_id="mirror",
            listener="LINK",
            client_address="10.0.0.1:5",
            client_software=CLIENT_SOFTWARE_NAME,
        )
        request_type = schemas.request_type(api_key, version)
        request = schemas.decode(request_type, schemas.encode(build_entity(request_type, values)))
        answer = await module.handle(request, context, self._doors)
        return schemas.decode(type(answer), schemas.encode(answer))
