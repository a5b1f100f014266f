"""Writes documents to an engine with the bulk interface of Elasticsearch and OpenSearch: what
Spark's workers run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Final, NoReturn

import requests
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from runtime.config_providers import looked_up
from runtime.process import OperationalFailure
from spark_jobs.pipelines.core.bulk_requests import BUSY, Document, Rejected, answered, body_of, bulk_requests

TIMEOUT_S: Final = 30.0
BUDGET_S: Final = 300.0
"""The time for one request, retries included, after which the batch of the query fails."""
_HEADERS: Final = {"Content-Type": "application/x-ndjson"}


class _Unavailable(Exception):
    """The engine does not answer, or takes nothing now."""


@dataclass(slots=True)
class DocumentWriter:
    """Sends documents to one index. `urls` are the engine's nodes, perhaps with user and password
    (`https://user:password@host:9200`); the next one is asked when one does not answer.
    """

    urls: Sequence[str]
    index: str
    budget_s: float = BUDGET_S
    _session: requests.Session = field(default_factory=requests.Session)

    def write(self, documents: Iterable[Document]) -> list[Rejected]:
        """Send all; those that the engine refuses. Raises OperationalFailure when it does not take
        the others in time.
        """
        rejected: list[Rejected] = []
        for request in bulk_requests(documents):
            rejected += self._send(request)
        return rejected

    def _send(self, documents: list[Document]) -> list[Rejected]:
        rejected: list[Rejected] = []
        urls = random.sample(self.urls, len(self.urls))
        left = documents
        retrying = Retrying(
            retry=retry_if_exception_type(_Unavailable),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            stop=stop_after_delay(self.budget_s),
            retry_error_callback=lambda state: _give_up(state.outcome.exception() if state.outcome else None),
        )
        for attempt in retrying:
            with attempt:
                urls.append(urls.pop(0))
                found = answered(left, self._post(urls[-1], left))
                rejected += found.rejected
                left = found.busy
                if left:
                    raise _Unavailable(f"it is too busy for {len(left)} documents")
        return rejected

    def _post(self, url: str, documents: list[Document]) -> Any:
        try:
            response = self._session.post(
                f"{url.rstrip('/')}/_bulk", data=body_of(self.index, documents), headers=_HEADERS, timeout=TIMEOUT_S
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _Unavailable(str(error)) from error
        if response.status_code in BUSY:
            raise _Unavailable(f"status {response.status_code}")
        if not response.ok:
            raise OperationalFailure(f"the document store answers {response.status_code}: {response.text[:500]}")
        try:
            return response.json()
        except ValueError as error:
            raise OperationalFailure(f"the document store answers no JSON: {response.text[:500]}") from error


def _give_up(error: BaseException | None) -> NoReturn:
    raise OperationalFailure(f"the document store takes no documents: {error}") from error


def nodes_of(store: str) -> list[str]:
    """The addresses of the option `--store`, with the references in it looked up.
    ConfigurationError.
    """
    return looked_up({"--store": store})["--store"].split(",")


def document_of(row: Any) -> Document:
    """The document of a row with `id`, `timestamp` and `message`."""
    # Spark gives Python a time in the worker's own zone, without the zone
    time = row.timestamp.astimezone(UTC).isoformat() if row.timestamp else None
    fields = {"@timestamp": time, "message": row.message}
    return Document(row.id, json.dumps(fields))


def write_rows(urls: Sequence[str], index: str, rows: Iterable[Any]) -> list[Rejected]:
    """Write the rows of one task; returns the refused ones."""
    return DocumentWriter(urls, index).write(map(document_of, rows))
