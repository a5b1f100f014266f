"""Configs of single groups through Kafka's Admin API: what is set at a site. Source: KIP-848,
KIP-1142.
"""

from typing import Final

from wire.client.raw_client import KafkaClient
from wire.client.requests.answer_checks import check_outcome, controller_connection

DESCRIBE_CONFIGS: Final = 32
LIST_CONFIG_RESOURCES: Final = 74
RESOURCE_GROUP: Final = 32
SET_FOR_GROUP: Final = 8
"""Kafka's number of the source of a config that is set on the group itself."""
_DESCRIBED_AT_ONCE: Final = 500


async def group_configs(client: KafkaClient) -> dict[str, dict[str, str]]:
    """The configs of each group that has configs of its own. Raises BrokerError, UnsupportedApi."""
    connection = await controller_connection(client)
    listed = await connection.call(LIST_CONFIG_RESOURCES, {"resource_types": (RESOURCE_GROUP,)})
    check_outcome(listed, connection, LIST_CONFIG_RESOURCES)
    names = sorted(one.resource_name for one in listed.config_resources if one.resource_type == RESOURCE_GROUP)
    found: dict[str, dict[str, str]] = {}
    for first in range(0, len(names), _DESCRIBED_AT_ONCE):
        resources = [
            {"resource_type": RESOURCE_GROUP, "resource_name": name, "configuration_keys": None}
            for name in names[first : first + _DESCRIBED_AT_ONCE]
        ]
        answer = await connection.call(DESCRIBE_CONFIGS, {"resources": resources})
        for result in answer.results:
            check_outcome(result, connection, DESCRIBE_CONFIGS)
            found[result.resource_name] = {
                one.name: one.value for one in result.configs if one.config_source == SET_FOR_GROUP
            }
    return {group: configs for group, configs in found.items() if configs}
