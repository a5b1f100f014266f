"""Questions to coordinators."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cli.kafka_admin import answer_of
from runtime.process import OperationalFailure

LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def answers(*outcomes: Any) -> Callable[[], Future[Any]]:
    """Asks a coordinator that answers so, one after the other."""
    left = list(outcomes)

    def ask() -> Future[Any]:
        outcome, future = left.pop(0), Future[Any]()
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return future

    return ask


@pytest.mark.parametrize("loading", [KafkaException(LOADING), SimpleNamespace(errors=[LOADING], valid=[])])
def test_a_coordinator_that_is_loading_is_asked_again(loading: Any) -> None:
    whole = SimpleNamespace(errors=[], valid=["board"])
    assert answer_of(answers(loading, loading, whole), "groups") is whole


def test_any_other_refusal_is_told_at_once() -> None:
    refused = KafkaException(KafkaError(KafkaError.NON_EMPTY_GROUP))
    with pytest.raises(OperationalFailure, match="group g: NON_EMPTY_GROUP"):
        answer_of(answers(refused, "asked again"), "group g")
