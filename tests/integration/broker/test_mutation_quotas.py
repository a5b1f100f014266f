"""Quotas of controller mutations: topics, partitions and deletions beyond the rate are refused, or
the client is throttled.
"""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from tests.support.clients.quota_calls import Limited, create
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> LoneBroker:
    return LoneBroker(session_processes, tmp_path_factory.mktemp("mutations"), quota_window_num="2")


@pytest.fixture
def limited(broker: LoneBroker) -> Limited:
    return Limited(broker)


def _names(count: int) -> list[str]:
    return [f"m-{uuid.uuid4().hex[:8]}" for _ in range(count)]


def test_topics_beyond_the_quota_of_mutations_are_refused_until_the_debt_is_paid(
    broker: LoneBroker, limited: Limited
) -> None:
    limited.limit(controller_mutation_rate=0.1)
    first, second, checked = _names(3)

    def asked(*arguments: Any, **options: Any) -> ErrorCode:
        with limited.connect() as client:  # a refused client is throttled until its debt is paid
            code: ErrorCode = create(client, *arguments, **options).error_code
        return code

    assert asked(first, 13) is ErrorCode.none  # the bucket holds one: the debt lasts two minutes
    assert asked(second) is ErrorCode.throttling_quota_exceeded
    assert asked(checked, is_validate_only=True) is ErrorCode.none
    assert asked(first) is ErrorCode.topic_already_exists

    limited.limit(controller_mutation_rate=10)
    eventually_sync(lambda: asked(second) is ErrorCode.none)
    # the bucket holds eleven: the debt of the next request lasts most of a minute
    limited.limit(controller_mutation_rate=1)
    more = {"topics": [{"name": second, "count": 60, "assignments": None}], "validate_only": False}

    def is_grown() -> bool:
        with limited.connect() as client:
            (grown,) = client.call(37, 3, {**more, "timeout": timedelta(seconds=5)}).results
        return grown.error_code is ErrorCode.none

    eventually_sync(is_grown)
    with limited.connect() as client:
        (deleted,) = client.call(
            20, 6, {"topics": [{"name": second, "topic_id": None}], "timeout": timedelta(seconds=5)}
        ).responses
    assert deleted.error_code is ErrorCode.throttling_quota_exceeded


def test_an_older_client_gets_its_topics_and_is_throttled_afterwards(broker: LoneBroker, limited: Limited) -> None:
    limited.limit(controller_mutation_rate=1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": limited.client_id})
    first, second = _names(2)
    began = time.monotonic()  # the throttle time begins with the first answer, which may arrive here late
    admin.create_topics([NewTopic(first, 14, 1)])[first].result(120)  # the bucket holds eleven
    admin.create_topics([NewTopic(second, 1, 1)])[second].result(120)
    assert time.monotonic() - began >= 2


def test_a_client_whose_metadata_requests_create_topics_is_throttled_by_their_partitions(
    broker: LoneBroker, limited: Limited
) -> None:
    limited.limit(controller_mutation_rate=1)
    names = _names(13)
    with limited.connect() as client:
        began = time.monotonic()
        first = client.metadata(*names, may_create=True)
        assert first.throttle_time >= timedelta(seconds=1)  # the bucket holds eleven
        found = client.metadata(*names, may_create=True)
        assert time.monotonic() - began >= 1
        assert found.throttle_time <= first.throttle_time, "they are counted once"
    assert all(topic.error_code is ErrorCode.none for topic in found.topics)
