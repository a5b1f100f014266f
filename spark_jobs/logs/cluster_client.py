"""Clients of a cluster, or of one site of a link, from the options of a job.

A job that gives no options of TLS and SASL logs in with the file of client properties that
`ANTIPODE_COMMAND_CONFIG` names in the environment of its process: of the driver, and of each
worker. Callers: the log reader and the data source.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Final

from runtime.addresses import parse_host_ports
from runtime.config_providers import looked_up
from runtime.configuration import read_properties
from spark_jobs.logs.core.cluster_options import ClusterOptions, InvalidOption
from wire.client.client_errors import TRANSIENT, broker_error
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.security import ClientSecurity, load_security, secured
from wire.protocol.ids import CONSUMER, DEBUGGING_CONSUMER

COMMAND_CONFIG: Final = "ANTIPODE_COMMAND_CONFIG"
RETRY_BUDGET_MS: Final = 60_000
DESCRIBE_CONFIGS: Final = 32
_BROKER_RESOURCE: Final = 4
_SITE_NAME: Final = "antipode.site.name"


def security_of_file() -> ClientSecurity | None:
    """The security in the file that `ANTIPODE_COMMAND_CONFIG` names; None without a file, and for a
    file with no options of Kafka's clients. ConfigurationError.
    """
    file = os.environ.get(COMMAND_CONFIG)
    return _loaded(file) if file else None


@functools.cache
def _loaded(file: str) -> ClientSecurity | None:
    """Once for each process, because a worker opens many clients."""
    properties = looked_up(read_properties(Path(file)))
    options = {key: value for key, value in properties.items() if not key.startswith("antipode.")}
    return load_security(options) if options else None


def connection_options(options: ClusterOptions) -> ConnectionOptions:
    """The options of a connection to the cluster. Raises ConfigurationError for options of TLS and
    SASL that do not fit.
    """
    plain = ConnectionOptions(client_id=options.client_id, request_timeout_ms=options.request_timeout_ms)
    security = load_security(dict(options.security)) if options.security else security_of_file()
    return plain if security is None else secured(plain, security)


def replica_id_of(options: ClusterOptions) -> int:
    """The replica id of reads, which a site answers even where it is passive."""
    return DEBUGGING_CONSUMER if options.site else CONSUMER


async def open_client(options: ClusterOptions) -> KafkaClient:
    """A client of the cluster, or of the named site alone. InvalidOption when no bootstrap server
    belongs to that site.
    """
    given = connection_options(options)
    if not options.site:
        return KafkaClient(options.bootstrap, given, retry_budget_ms=RETRY_BUDGET_MS)
    found = []
    for address in parse_host_ports(options.bootstrap):
        client = KafkaClient([address], given, site_local=True, retry_budget_ms=RETRY_BUDGET_MS)
        try:
            found.append(await site_of(client))
        except TRANSIENT as error:
            found.append(str(error))
        if found[-1] == options.site:
            return client
        await client.close()
    raise InvalidOption(
        "antipode.site", options.site, f"the site of a bootstrap server; {options.bootstrap} are {', '.join(found)}"
    )


async def site_of(client: KafkaClient) -> str:
    """The name of the site whose broker this client asks; empty where brokers belong to none."""
    cluster = await client.metadata([])
    node = min(cluster.brokers)
    resource = {"resource_type": _BROKER_RESOURCE, "resource_name": str(node), "configuration_keys": (_SITE_NAME,)}
    answer = await (await client.connection(node)).call(DESCRIBE_CONFIGS, {"resources": [resource]})
    (described,) = answer.results
    if described.error_code:
        raise broker_error(described.error_code, message=described.error_message, api_key=DESCRIBE_CONFIGS)
    return next((config.value or "" for config in described.configs if config.name == _SITE_NAME), "")
