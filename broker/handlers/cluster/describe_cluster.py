"""DescribeCluster: cluster id, controller and brokers, merged as in Metadata.

Behaviour: answers with the addresses of the listener that received the request. Versions: 0 to 2.
The brokers are the only endpoints: a client that asks for KRaft controllers gets the same answer as
from a Kafka broker. The authorized operations contain all operations
(`broker/metadata/core/authorized_operations.py`).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.core.authorized_operations import ALL_OF_THE_CLUSTER, answered
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 60
MIN_VERSION = 0
MAX_VERSION = 2

_BROKERS_ENDPOINT_TYPE = 1
_CONTROLLERS_ENDPOINT_TYPE = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeCluster request."""
    build = builder(API_KEY, context.api_version)
    image = doors.cluster.image
    endpoint_type = getattr(request, "endpoint_type", _BROKERS_ENDPOINT_TYPE)
    if endpoint_type != _BROKERS_ENDPOINT_TYPE:
        is_controllers = endpoint_type == _CONTROLLERS_ENDPOINT_TYPE
        return build.response(
            error_code=ErrorCode.mismatched_endpoint_type if is_controllers else ErrorCode.unsupported_endpoint_type,
            error_message=f"endpoint type {endpoint_type} is not available at a broker; accepted: 1",
            cluster_id="",
            brokers=(),
        )
    brokers = tuple(
        build.part(
            "DescribeClusterBroker",
            broker_id=broker.node_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack or None,
            is_fenced=False,
        )
        for broker in image.routed_brokers().values()
        for endpoint in broker.endpoints
        if endpoint.listener == context.listener
    )
    return build.response(
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=_BROKERS_ENDPOINT_TYPE,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=answered(
            ALL_OF_THE_CLUSTER, is_asked=request.include_cluster_authorized_operations
        ),
    )
