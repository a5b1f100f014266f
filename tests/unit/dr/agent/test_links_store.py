"""Accounts of failovers in a site's ZooKeeper: a final one stays when an earlier one arrives after
it, and one that a caller knows is not read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError
from msgspec.structs import replace

from dr.agent import account_store, links_store
from dr.agent.links_store import LinkConflict, LinksStore
from dr.sites.core.loss import LossAccount, PartitionLoss
from dr.sites.core.record_changes import changed
from runtime.retries import jittered_backoff
from runtime.zookeeper.nodes import CreateNode, DeleteNode, SetNode
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.znodes import layout as znodes
from wire.znodes import link_znodes

LOSS = PartitionLoss(
    topic="flights",
    partition=0,
    kept_below=100,
    source_end=103,
    is_source_end_exact=False,
    known_lost_records=3,
    last_contact_ms=40,
)
ACCOUNT = LossAccount(
    link="a-b", epoch=2, from_site="a", to_site="b", accounted_at_ms=0, partitions=(LOSS,), leader_epoch_floor=1 << 16
)
FINAL = replace(
    ACCOUNT, partitions=(replace(LOSS, found_first=100, found_end=140, found_bytes=900),), settled_at_ms=7_000
)

RECORD = LinkRecord(name="a-b", epoch=2, source_site="a", target_site="b", active_site="b", phase=LinkPhase.MIRRORING)


class Znodes:
    """The part of a tree of znodes that accounts use."""

    def __init__(self) -> None:
        self.kept = {znodes.link_path("a-b"): (link_znodes.encode_link(RECORD), 0)}
        self.read: list[str] = []

    async def get_or_none(self, path: str) -> tuple[bytes, Any] | None:
        self.read.append(path)
        found = self.kept.get(path)
        return None if found is None else (found[0], _stat(found[1]))

    async def exists(self, path: str) -> Any:
        found = self.kept.get(path)
        return None if found is None else _stat(found[1])

    async def children(self, path: str) -> list[str]:
        return [kept.removeprefix(f"{path}/") for kept in self.kept if kept.startswith(f"{path}/")]

    async def ensure_path(self, _: str) -> None:
        """Creates no parents: no test looks at them."""

    async def create(self, path: str, value: bytes = b"") -> None:
        if path in self.kept:
            raise NodeExistsError
        self.kept[path] = value, 0

    async def set(self, path: str, value: bytes, *, version: int) -> None:
        assert self.kept[path][1] == version
        self.kept[path] = value, version + 1

    async def delete(self, path: str) -> None:
        if self.kept.pop(path, None) is None:
            raise NoNodeError

    async def transaction(self, steps: Sequence[Any]) -> None:
        created = {step.path for step in steps if isinstance(step, CreateNode)}
        for step in steps:
            version = None if step.path in created else getattr(step, "version", None)
            if version is not None and step.path not in self.kept:
                raise NoNodeError
            if version not in (None, -1) and self.kept[step.path][1] != version:
                raise BadVersionError
            if isinstance(step, CreateNode) and step.path in self.kept:
                raise NodeExistsError
        for step in steps:
            match step:
                case CreateNode():
                    self.kept[step.path] = step.value, 0
                case SetNode():
                    self.kept[step.path] = step.value, step.version + 1
                case DeleteNode():
                    del self.kept[step.path]

    def account(self) -> LossAccount:
        payload, _ = self.kept[link_znodes.failover_path("a-b", 2)]
        return LossAccount.from_json(link_znodes.decode_account("a-b", 2, payload))


def _stat(version: int) -> SimpleNamespace:
    return SimpleNamespace(version=version, mzxid=1000 + version)


@pytest.mark.parametrize(
    ("documents", "kept"),
    [
        ((ACCOUNT, FINAL), FINAL),
        ((FINAL, ACCOUNT), FINAL),  # the run of the operator notifies the site that has settled it meanwhile
        ((ACCOUNT, replace(ACCOUNT, accounted_at_ms=5)), replace(ACCOUNT, accounted_at_ms=5)),
        ((FINAL, replace(FINAL, settled_at_ms=9_000)), replace(FINAL, settled_at_ms=9_000)),
    ],
)
async def test_an_account_that_is_not_final_replaces_no_final_one(
    documents: tuple[LossAccount, ...], kept: LossAccount
) -> None:
    tree: Any = Znodes()
    store = LinksStore(tree)
    for document in documents:
        await store.accounts.record("a-b", epoch=2, document=document.to_json())
    assert tree.account() == kept


def raised(epoch: int) -> LinkRecord:
    return changed(RECORD, epoch=epoch, active_site="a", kept_before_ms=0)


async def test_writes_are_given_back_only_while_the_epoch_has_no_account() -> None:
    """A client may have written as soon as the account is stored."""
    tree: Any = Znodes()
    store = LinksStore(tree)
    await store.accounts.record("a-b", epoch=2, document=ACCOUNT.to_json())
    with pytest.raises(LinkConflict, match="the account of epoch 2 is stored"):
        await store.adopt(raised(3), unless_accounted=True)
    assert (await store.get("a-b"))[0] == RECORD
    assert tree.account() == ACCOUNT


async def test_giving_writes_back_leaves_no_account() -> None:
    tree: Any = Znodes()
    store = LinksStore(tree)
    assert await store.adopt(raised(3), unless_accounted=True) == raised(3)
    assert (await store.get("a-b"))[0] == raised(3)
    assert not any(path.startswith(link_znodes.failover_path("a-b", 2)) for path in tree.kept)


class LosingAnswers(Znodes):
    """The first write is executed and its answer is lost. Reads are served by a server that does
    not have that write until it refuses the second one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.behind: dict[str, tuple[bytes, int]] | None = None
        self.is_armed = False

    async def get_or_none(self, path: str) -> Any:
        if self.behind is None:
            return await super().get_or_none(path)
        kept = self.behind.get(path)
        return None if kept is None else (kept[0], _stat(kept[1]))

    async def create(self, path: str, value: bytes) -> None:
        await self.transaction([CreateNode(path=path, value=value)])

    async def set(self, path: str, value: bytes, *, version: int) -> None:
        await self.transaction([SetNode(path=path, value=value, version=version)])

    async def transaction(self, steps: Sequence[Any]) -> None:
        if not self.is_armed:
            self.behind = None
            await super().transaction(steps)
            return
        before = dict(self.kept)
        await super().transaction(steps)
        self.behind, self.is_armed = before, False
        raise ConnectionLoss


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tree that loses an answer; the time for retries ends with the second attempt."""
    bounded = partial(jittered_backoff, initial_ms=0, attempts_max=2)
    for module in (account_store, links_store):
        monkeypatch.setattr(module, "jittered_backoff", lambda *, retry_on, **_: bounded(retry_on=retry_on))
    tree: Any = LosingAnswers()
    tree.kept[znodes.link_path("a-b")] = link_znodes.encode_link(RECORD), 0
    return tree


@pytest.mark.parametrize("before", [None, replace(ACCOUNT, accounted_at_ms=5)])
async def test_an_account_whose_answer_was_lost_is_found(losing: Any, before: LossAccount | None) -> None:
    store = LinksStore(losing)
    if before is not None:
        await store.accounts.record("a-b", epoch=2, document=before.to_json())
    losing.is_armed = True
    await store.accounts.record("a-b", epoch=2, document=ACCOUNT.to_json())
    assert losing.account() == ACCOUNT


async def test_an_account_that_another_writer_has_replaced_is_not_taken_for_the_own_one(losing: Any) -> None:
    store = LinksStore(losing)
    losing.is_armed = True

    async def loses_and_is_overtaken(path: str, value: bytes) -> None:
        losing.kept[path] = link_znodes.encode_account(replace(ACCOUNT, accounted_at_ms=5).to_json()), 4
        raise NodeExistsError

    losing.create = loses_and_is_overtaken
    losing.behind = dict(losing.kept)
    with pytest.raises(NodeExistsError):
        await store.accounts.record("a-b", epoch=2, document=ACCOUNT.to_json())


async def test_a_record_whose_answer_was_lost_is_found(losing: Any) -> None:
    store = LinksStore(losing)
    newer = changed(RECORD, epoch=RECORD.epoch + 1)
    losing.is_armed = True
    assert await store.adopt(newer) == newer
    assert (await store.get("a-b"))[0] == newer


async def test_a_deletion_whose_answer_was_lost_has_succeeded(losing: Any) -> None:
    store = LinksStore(losing)
    losing.is_armed = True
    assert await store.delete("a-b", epoch=RECORD.epoch) == RECORD
    assert znodes.link_path("a-b") not in losing.kept


class RaisedMeanwhile(Znodes):
    """A failover raises the epoch just before the first transaction."""

    async def transaction(self, steps: Sequence[Any]) -> None:
        path = znodes.link_path("a-b")
        if link_znodes.decode_link("a-b", self.kept[path][0]).epoch == RECORD.epoch:
            self.kept[path] = link_znodes.encode_link(changed(RECORD, epoch=RECORD.epoch + 1)), 1
        await super().transaction(steps)


async def test_a_deletion_that_a_failover_overtakes_deletes_nothing() -> None:
    """The failover needs the accounts, and waits for the permits that the vows renewed."""
    tree: Any = RaisedMeanwhile()
    tree.kept[link_znodes.failover_path("a-b", 2)] = link_znodes.encode_account(ACCOUNT.to_json()), 0
    tree.kept[link_znodes.vow_path("a-b", "a:1")] = b"", 0
    with pytest.raises(LinkConflict):
        await LinksStore(tree).delete("a-b", epoch=RECORD.epoch)
    assert tree.account() == ACCOUNT
    assert link_znodes.vow_path("a-b", "a:1") in tree.kept


async def test_a_deleted_link_leaves_nothing_behind() -> None:
    tree: Any = Znodes()
    for path in (
        link_znodes.failover_path("a-b", 2),
        link_znodes.vow_path("a-b", "a:1"),
        link_znodes.opened_path("a-b"),
    ):
        tree.kept[path] = b"", 0
    await LinksStore(tree).delete("a-b", epoch=RECORD.epoch)
    assert not tree.kept


async def test_an_account_that_cannot_be_read_is_replaced() -> None:
    tree: Any = Znodes()
    tree.kept[link_znodes.failover_path("a-b", 2)] = link_znodes.encode_account("{}"), 3
    await LinksStore(tree).accounts.record("a-b", epoch=2, document=ACCOUNT.to_json())
    assert tree.account() == ACCOUNT


async def test_an_account_is_read_again_only_after_it_has_changed() -> None:
    tree: Any = Znodes()
    store = LinksStore(tree)
    older, newer = ACCOUNT.to_json(), replace(ACCOUNT, epoch=4).to_json()
    await store.accounts.record("a-b", epoch=2, document=older)
    await store.accounts.record("a-b", epoch=4, document=newer)
    versions, accounts = await store.accounts.changed("a-b", {})
    assert accounts == {2: older, 4: newer}

    tree.read.clear()
    assert await store.accounts.changed("a-b", versions) == (versions, {})
    assert not tree.read

    await store.accounts.record("a-b", epoch=2, document=FINAL.to_json())
    changed, accounts = await store.accounts.changed("a-b", versions)
    assert accounts == {2: FINAL.to_json()}
    assert list(changed) == [2, 4]
    assert changed[4] == versions[4]
    assert changed[2] != versions[2]


OF_C = LinkRecord(name="a-c", epoch=2, source_site="b", target_site="c", active_site="b", phase=LinkPhase.MIRRORING)


def knowing(*sites: str) -> Any:
    """A tree whose link a-b names these sites."""
    tree: Any = Znodes()
    record = changed(RECORD)
    for site in sites:
        record.sites[site].CopyFrom(LinkSite(agents=[f"{site}:9391"]))
    tree.kept[znodes.link_path("a-b")] = link_znodes.encode_link(record), 0
    return tree


async def test_a_link_is_joined_once_and_only_if_the_link_beside_it_names_both_ends() -> None:
    tree = knowing("a", "b", "c")
    store = LinksStore(tree)
    assert await store.join(OF_C, beside="a-b")
    assert not await store.join(OF_C, beside="a-b")
    assert (await store.get("a-c"))[0] == OF_C
    strangers = LinksStore(knowing("a", "b"))
    with pytest.raises(LinkConflict):
        await strangers.join(OF_C, beside="a-b")


async def test_a_deletion_changes_the_links_beside_it_in_the_same_transaction() -> None:
    tree = knowing("a", "b", "c")
    store = LinksStore(tree)
    await store.join(OF_C, beside="a-b")
    forgetting = changed((await store.get("a-b"))[0], revision=1)
    del forgetting.sites["c"]
    await store.delete("a-c", epoch=2, beside=[forgetting])
    assert znodes.link_path("a-c") not in tree.kept
    assert set((await store.get("a-b"))[0].sites) == {"a", "b"}
    with pytest.raises(LinkConflict):
        await store.join(OF_C, beside="a-b")


async def test_a_record_is_replaced_only_if_it_is_the_one_that_was_decided_upon() -> None:
    store = LinksStore(knowing("a", "b"))
    known, _ = await store.get("a-b")
    newer = changed(known, revision=1)
    assert await store.replace(newer, instead_of=known)
    assert not await store.replace(changed(known, epoch=3), instead_of=known)
    assert (await store.get("a-b"))[0] == newer
