"""Bulk requests are bounded in bytes and lose no document; each answer is about its own
document.
"""

from __future__ import annotations

import json
import time
from datetime import datetime

import pytest
from pyspark.sql import Row

from spark_jobs.pipelines.core.bulk_requests import Document, Rejected, answered, body_of, bulk_requests
from spark_jobs.pipelines.document_store import document_of, nodes_of


def document(number: int, length: int = 8) -> Document:
    return Document(f"t-0-{number}", json.dumps({"message": "x" * length}))


def test_a_request_is_bounded_in_bytes_unless_one_document_is_larger() -> None:
    documents = [document(1), document(2), document(3, 1_000), document(4)]
    found = list(bulk_requests(documents, bytes_max=70))
    assert [[one.id for one in request] for request in found] == [["t-0-1", "t-0-2"], ["t-0-3"], ["t-0-4"]]
    assert list(bulk_requests([])) == []


def test_a_body_has_an_action_with_the_id_and_a_line_with_the_fields() -> None:
    lines = body_of("logs", [Document("t-0-1", '{"message":"ü"}')]).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"index": {"_index": "logs", "_id": "t-0-1"}}, {"message": "ü"}]


def test_an_answer_decides_over_each_document() -> None:
    documents = [document(number) for number in range(4)]
    statuses = (201, 429, 400, 200)
    error = {"type": "mapper_parsing_exception", "reason": "no date"}
    items = [{"index": {"status": status, "error": error}} for status in statuses]
    found = answered(documents, {"errors": True, "items": items})
    assert found.busy == [documents[1]]
    assert found.rejected == [Rejected("t-0-2", "mapper_parsing_exception: no date")]
    with pytest.raises(ValueError, match="4 documents"):
        answered(documents, {"items": items[:1]})


def test_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "hidden")
    found = nodes_of("https://user:${env:STORE_PASSWORD}@one:9200,http://two:9200")
    assert found == ["https://user:hidden@one:9200", "http://two:9200"]


def test_a_document_has_its_time_with_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        row = Row(id="t-0-1", timestamp=datetime.fromtimestamp(1_700_000_000.5), message="m")
        assert json.loads(document_of(row).source)["@timestamp"] == "2023-11-14T22:13:20.500000+00:00"
        assert json.loads(document_of(Row(id="t-0-2", timestamp=None, message="m")).source)["@timestamp"] is None
    time.tzset()
