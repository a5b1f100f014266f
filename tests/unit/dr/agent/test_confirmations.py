"""A person confirms an epoch without asking the peer, but not while a failover to a time waits for
its truncation: a log in which clients have written since keeps the records that must go.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dr.agent.answers.answering import Refusal, raising
from dr.agent.answers.link_changes import LinkChanges
from dr.agent.links_store import LinksStore
from dr.agent.own_brokers import Confirmation
from dr.sites.core.record_changes import changed
from tests.support.clock import ManualClock
from tests.unit.dr.agent.test_links_store import ACCOUNT, RECORD, Znodes
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import ConfirmSiteLinkRequest
from wire.znodes import layout as znodes
from wire.znodes import link_znodes

CONTEXT: Any = None


class Site:
    """The agent of site b, with the link's record, and its brokers."""

    def __init__(self, record: LinkRecord) -> None:
        zookeeper: Any = Znodes()
        zookeeper.kept[znodes.link_path("a-b")] = link_znodes.encode_link(record), 0
        self.store = LinksStore(zookeeper)
        self.confirmed: list[int] = []
        peers = SimpleNamespace(note_confirmed=lambda _record: None)
        parts: Any = SimpleNamespace(store=self.store, brokers=self, peers=peers)
        self._answers = LinkChanges("b", ManualClock())
        self._answers.run_with(parts)

    async def confirm(self, _link: str, *, epoch: int, timeout_ms: int) -> Confirmation:
        """Plays OwnBrokers."""
        self.confirmed.append(epoch)
        return Confirmation(problems=[], are_writable=True)

    async def ask(self) -> None:
        """An operator confirms the epoch."""
        await raising(self._answers.ConfirmLink)(ConfirmSiteLinkRequest(name="a-b", epoch=RECORD.epoch), CONTEXT)


async def test_an_epoch_whose_logs_are_not_truncated_yet_is_not_confirmed() -> None:
    site = Site(changed(RECORD, kept_before_ms=700))
    with pytest.raises(Refusal, match=r"run it again to finish it \(antipode failover a-b --to b\)") as refused:
        await site.ask()
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert not site.confirmed
    await site.store.accounts.record("a-b", epoch=RECORD.epoch, document=ACCOUNT.to_json())
    await site.ask()
    assert site.confirmed == [RECORD.epoch]


async def test_another_epoch_needs_no_account() -> None:
    site = Site(RECORD)
    await site.ask()
    assert site.confirmed == [RECORD.epoch]
