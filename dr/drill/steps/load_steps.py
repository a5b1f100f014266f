"""Executes the steps that create topics, and start and stop clients."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_never

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from dr.drill.drill_clients import DrillClients
from dr.drill.environment import Environment
from dr.drill.load import connection_options
from dr.drill.plan.load_verbs import (
    CreateTopics,
    LoadStep,
    PauseLoad,
    ResumeLoad,
    StartGroup,
    StartLoad,
    StopGroup,
    StopLoad,
)
from runtime.process import OperationalFailure

CREATE_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSteps:
    """The load of one drill. Its clients start at the site that is the link's source."""

    environment: Environment
    link: str
    clients: DrillClients

    async def carry_out(self, step: LoadStep) -> str:
        """Execute the step; returns its result as a sentence."""
        match step:
            case PauseLoad() | ResumeLoad():
                self.clients.freeze_producer(step.name, is_frozen=isinstance(step, PauseLoad))
            case CreateTopics():
                await asyncio.to_thread(
                    self._create_topics, step, self.environment.bootstrap_servers(self.link, step.site)
                )
                return ", ".join(f"{topic.name} ({topic.partitions})" for topic in step.topics)
            case StartLoad():
                fields = step.model_dump(exclude={"name", "site"})
                self.clients.start_producer(step.name, {**fields, **self._connection(step.site)})
                await self.clients.wait_started(step.name)
            case StartGroup():
                settings = {**self._connection(step.site), "topics": step.topics}
                self.clients.start_group(step.name, step.members, {**settings, "settings": step.settings})
                await self.clients.wait_started(step.name)
            case StopLoad():
                await self.clients.stop_producer(step.name, within_ms=step.within)
                self.clients.check_alive()
            case StopGroup():
                await self.clients.stop_group(step.name, within_ms=step.within)
            case _:
                assert_never(step)
        return ""

    def _connection(self, site: str) -> dict[str, Any]:
        """The settings of a client that connect it to the brokers of a site, as JSON values."""
        config = self.environment.admin_client_config
        return {
            "bootstrap_servers": self.environment.bootstrap_servers(self.link, site),
            "client_config": None if config is None else str(config),
        }

    def _create_topics(self, step: CreateTopics, bootstrap_servers: str) -> None:
        admin = AdminClient(connection_options(bootstrap_servers, self.environment.admin_client_config))
        wanted = [
            NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=-1, config=topic.configs)
            for topic in step.topics
        ]
        for name, outcome in admin.create_topics(wanted, request_timeout=CREATE_TIMEOUT_S).items():
            try:
                outcome.result(timeout=CREATE_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise OperationalFailure(f"topic {name} cannot be created: {error.args[0].str()}") from error
