"""Undisturbed runs of the playbook: a source that answers loses nothing, and the account counts
what a source that does not answer may lose (F1, F2).
"""

from __future__ import annotations

import pytest

from dr.failover.core.steps import FailoverPolicy, Step
from dr.sites.core.evidence import Evidence
from dr.sites.core.loss import LossAccount
from dr.sites.core.unprotected_topics import UnprotectedTopic
from tests.unit.dr.core.link_model import KEY, ModelPartition, Operator
from tests.unit.dr.failover.core.failover_links import assert_promoted, link_with_a_late_commit, link_with_records
from wire.protocol.ids import TopicPartition


def test_f1_a_source_that_answers_is_fenced_drained_and_nothing_is_lost() -> None:
    link = link_with_records(written=20, mirrored=7)
    operator = Operator(link)
    assert operator.run().step is Step.DONE
    assert [line.split(":")[0] for line in operator.story] == [
        "prepare",
        "fence",
        "drain",
        "raise",
        "promote",
        "notify",
        "done",
    ]
    kept = link.b.accounts[2].partitions[0]
    assert (kept.kept_below, kept.known_lost_records, kept.is_source_end_exact) == (20, 0, True)
    assert link.a.record.epoch == 2
    assert_promoted(link)


def test_the_look_that_follows_the_raise_asks_the_target_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers wait until this look ends."""
    link = link_with_records(written=5, mirrored=5)
    operator = Operator(link)
    looks: list[tuple[bool, bool]] = []
    look = link.evidence

    def noted(to_site: str) -> Evidence:
        looks.append((operator.playbook.wants_source, operator.playbook.wants_groups))
        return look(to_site)

    monkeypatch.setattr(link, "evidence", noted)
    before_the_raise = 0
    for step in operator.steps():
        if step is Step.RAISE:
            before_the_raise = len(looks)
    assert looks[before_the_raise - 1] == (True, True)
    assert looks[before_the_raise] == (False, False)


NEW = TopicPartition("made-last", 0)


def test_f1_a_partition_without_a_record_is_waited_for_too() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.partitions[NEW] = ModelPartition()
    operator = Operator(link)
    assert operator.run().step is Step.DONE
    assert NEW in link.b.partitions
    assert "prepare: 1 partitions are not here yet (made-last-0); writers continue meanwhile" in operator.story
    link = link_with_records(written=3, mirrored=3)
    link.a.partitions[NEW] = ModelPartition()
    link.is_link_up = False
    refused = Operator(link).run()
    assert "1 partitions are not here yet (made-last-0)" in refused.reason
    accepted = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=500))
    assert accepted.run().step is Step.DONE
    sentences = [loss.sentence for loss in link.b.accounts[link.b.record.epoch].partitions]
    assert "made-last-0: not protected: it was not mirrored yet, 0 records and the partition are lost" in sentences


def test_f2_a_dead_source_is_not_waited_for_and_its_known_loss_is_counted() -> None:
    link = link_with_records(written=10, mirrored=4)
    link.mirror(batch_max=3)
    link.a.is_up = False
    operator = Operator(link)
    assert operator.run().step is Step.DONE
    lost = link.b.accounts[2].partitions[0]
    assert (lost.kept_below, lost.known_lost_records, lost.is_source_end_exact) == (7, 3, False)
    assert "records that the old site acknowledged at or above 7 are lost" in lost.sentence
    assert_promoted(link)


def test_f2_partitions_of_a_lost_site_that_were_not_mirrored_yet_are_named() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.b.unprotected = (UnprotectedTopic(topic=NEW.topic, partitions=(0,), reason="not here"),)
    link.a.is_up = False
    assert Operator(link).run().step is Step.DONE
    kept, unprotected = link.b.accounts[2].partitions
    assert (kept.topic, kept.is_protected) == (KEY.topic, True)
    assert unprotected.sentence.startswith("made-last-0: not protected")
    assert not link.b.accounts[2].is_exact


def test_a_partition_that_never_reached_the_target_is_counted_as_lost() -> None:
    link = link_with_records(written=2, mirrored=2)
    young = type(KEY)("flights", 1)
    link.a.partitions[young] = ModelPartition(log=[(0, "x"), (0, "y")])
    link.is_link_up = False
    assert Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=100)).run().step is Step.DONE
    lost = {(item.partition, item.known_lost_records) for item in link.b.accounts[2].partitions}
    assert lost == {(0, 0), (1, 2)}


def test_an_account_is_read_back_as_it_was_kept() -> None:
    link = link_with_a_late_commit(12)
    Operator(link).run()
    kept = link.b.accounts[2]
    assert LossAccount.from_json(kept.to_json()) == kept
