"""The services that every handler may use, in one value, and the context of a handler's request.

Built once by `main.py`. The image is the only thing here that changes; `services.image` is always
the newest, and a handler that must see one image throughout reads it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.config import BrokerSettings
from broker.core.cluster_image import ClusterImage, TopicImage
from broker.core.fetch_sessions import FetchSessions
from broker.metadata_encoding import MetadataCache
from runtime.clock import Clock
from wire.private import CLIENT_SOFTWARE_NAME

if TYPE_CHECKING:
    from broker.active_site import ActiveSite
    from broker.config_store import BrokerConfigStore
    from broker.coordinator import GroupCoordinator
    from broker.doubts import Doubts
    from broker.dynamic_configs import DynamicConfigs
    from broker.group_reports import GroupReports
    from broker.hand_over import HandOver
    from broker.log.log_store import LogStore
    from broker.metrics import BrokerMetrics
    from broker.peer_news import PeerNews
    from broker.producer_id_source import ProducerIdSource
    from broker.quotas import Quotas
    from broker.replicas import Replicas
    from broker.topic_creation import TopicCreator
    from broker.transaction_admission import TransactionAdmission
    from broker.transaction_coordinator import TransactionCoordinator
    from broker.transaction_markers import TransactionMarkers
    from broker.transaction_routing import TransactionRouting
    from wire.control.clients import ControllerClient


TakePeerReports = Callable[[str, "Sequence[tuple[TopicImage, bool]]"], Awaitable[None]]
"""Takes over topics that a broker of a peer site reports, each with whether it was deleted."""


class Cluster:
    """Holds the newest image; `control_service.py` replaces it."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._waiting: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []

    def replace(self, image: ClusterImage) -> None:
        """Put a newer image in place and wake those who wait for what it has."""
        self.image = image
        self.look_again()

    def look_again(self) -> None:
        """Wake those whose condition holds now: what it asks beside the image has changed, too."""
        image = self.image
        for condition, future in tuple(self._waiting):
            if future.done():
                continue
            try:
                is_met = condition(image)
            except Exception as error:
                future.set_exception(error)  # it is for who asked, and not for the controller that sent the image
            else:
                if is_met:
                    future.set_result(None)

    async def wait_for(self, condition: Callable[[ClusterImage], bool], *, timeout_ms: float) -> bool:
        """True when an image fulfils the condition in time; admin handlers let a client see what it
        has just changed.
        """
        if condition(self.image):
            return True
        entry = (condition, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(entry[1], timeout_ms / 1000)
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(entry)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """The parts of one broker."""

    configs: DynamicConfigs
    config_store: BrokerConfigStore
    clock: Clock
    cluster: Cluster
    replicas: Replicas
    logs: LogStore
    groups: GroupCoordinator
    group_reports: GroupReports
    producer_ids: ProducerIdSource
    transactions: TransactionCoordinator
    transaction_routing: TransactionRouting
    transaction_admission: TransactionAdmission
    transaction_markers: TransactionMarkers
    controller: ControllerClient
    active_site: ActiveSite
    peer_news: PeerNews
    take_peer_reports: TakePeerReports
    metrics: BrokerMetrics
    quotas: Quotas
    fetch_sessions: FetchSessions
    doubts: Doubts
    hand_over: HandOver
    topic_creator: TopicCreator
    merged_metadata: MetadataCache
    site_metadata: MetadataCache

    @property
    def config(self) -> BrokerSettings:
        """The settings in force."""
        return self.configs.current

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self.cluster.image


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request's header and where it came from."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    client_address: str
    client_software: str = ""

    @property
    def is_own_tool(self) -> bool:
        """True for mirrors and tools of our own, which deal with this site as it is."""
        return self.client_software == CLIENT_SOFTWARE_NAME
