"""Producers whose older batches are left out by a replay end in the state that every batch of
theirs would have led to.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.core.producer_state import ProducerStates
from broker.log.producer_replay import ProducerReplay, replay_batch
from tests.support.disks.log_batches import TRANSACTIONAL, batch, marker
from tests.support.examples import examples
from wire.batches.record_batch import read_header

KINDS = ("plain", "plain", "plain", "plain", "next epoch", "transactional", "commit", "abort")
STORED = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS)), max_size=40)


def stored_batches(history):
    """The batches of (producer, its action) in the order of a log, one offset each."""
    epochs = dict.fromkeys(range(3), 0)
    for offset, (producer, kind) in enumerate(history):
        epochs[producer] += kind == "next epoch"
        if kind in ("commit", "abort"):
            content = marker(producer_id=producer, producer_epoch=epochs[producer], is_commit=kind == "commit")
        else:
            attributes = TRANSACTIONAL if kind == "transactional" else 0
            content = batch(
                [b"v"], producer_id=producer, producer_epoch=epochs[producer], sequence=offset, attributes=attributes
            )
        yield read_header(content)._replace(base_offset=offset), content


@settings(max_examples=examples(100), deadline=None)
@given(before=STORED, after=STORED)
def test_replay_leaves_out_only_what_leaves_no_trace(before, after):
    every, newest = ProducerStates(), ProducerStates()
    batches = list(stored_batches([*before, *after]))
    for header, content in batches[: len(before)]:
        replay_batch(every, header, content)
        replay_batch(newest, header, content)
    replay = ProducerReplay(newest)
    for header, content in batches[len(before) :]:
        assert replay.take(header, content) == replay_batch(every, header, content)
    replay.settle()
    assert newest._producers == every._producers
    assert newest._ongoing == every._ongoing
    assert newest._unreplicated == every._unreplicated
