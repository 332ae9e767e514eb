"""At any instant the index shows what the plain fold shows there."""

import random
import time

import numpy as np
import pytest
from console.logs import shown, unpacked
from console.logs_large import large
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.handmade import LOG_ID, migration, placements
from replay.world import World

from restow.console.follow import Follower
from restow.console.frames import as_bytes, as_values, frame, seq_at, time_at
from restow.console.tracks import LEAST_APART, Track
from restow.console.view import view
from restow.domain import snapshot
from restow.domain.state import ClusterState
from restow.replay.source import ListSource
from restow.replay.state_at import fold_record


def indexed(log):
    follower = Follower(ListSource(log.records, log_id=LOG_ID))
    follower._run()
    assert follower.error == ""
    return follower.index


def agree(log):
    """Every instant, and what differs between neighbours and between any two that are far apart."""
    index, state, before = indexed(log), ClusterState(), None
    for record in log.records:
        fold_record(state, record, LOG_ID)
        expected = view(state)
        found = shown(index, frame(index, record.seq))
        assert found == expected, record.seq
        if before is not None:
            there, back = frame(index, record.seq, record.seq - 1), frame(index, record.seq - 1, record.seq)
            assert shown(index, there, before) == expected, record.seq
            assert shown(index, back, expected) == before, record.seq
        before = expected
    return index


@pytest.mark.parametrize("log", [placements(), migration(), migration(lands=False)], ids=["placements", "migration", "failed"])
def test_of_logs_made_by_hand_every_instant_is_as_the_fold_says(log):
    agree(log)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), steps=st.integers(5, 25))
def test_of_logs_that_the_deciders_have_made_every_instant_is_as_the_fold_says(seed, steps):
    agree(World(seed).play(steps))


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_what_differs_leads_from_any_instant_to_any_other(seed, data):
    log = World(seed).play(15)
    index = indexed(log)
    one, other = (data.draw(st.integers(0, index.last)) for _ in range(2))
    start = shown(index, frame(index, one))
    assert shown(index, frame(index, other, one), start) == shown(index, frame(index, other))


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_begun_at_a_snapshot_every_instant_from_there_on_is_as_the_fold_says(seed, data):
    log = World(seed).play(15)
    begin = data.draw(st.integers(1, len(log.records) - 1))
    source, state = ListSource(log.records, log_id=LOG_ID), ClusterState()
    for record in log.records[:begin]:
        fold_record(state, record, LOG_ID)
    follower = Follower(source)
    follower._state = snapshot.load(snapshot.dump(state))
    follower.index.begin(follower._state)
    follower._run()
    index = follower.index
    assert (index.first, index.last, follower.error) == (begin, len(log.records), "")
    assert shown(index, frame(index, begin)) == view(state)
    for record in log.records[begin:]:
        fold_record(state, record, LOG_ID)
        assert shown(index, frame(index, record.seq)) == view(state), record.seq
        assert seq_at(index, time_at(index, record.seq)) >= record.seq
    assert shown(index, frame(index, begin - 1)) == view(ClusterState())


def test_before_the_first_commit_there_is_nothing():
    index = indexed(placements())
    assert shown(index, frame(index, 0)) == view(ClusterState())


def test_keyframes_change_nothing():
    track, plain, random = Track(np.dtype([("slot", "<u4"), ("value", "<i8")])), {}, np.random.default_rng(7)
    instants = {}
    for seq in range(1, 4 * LEAST_APART):
        key = int(random.integers(0, 200))
        if random.random() < 0.3 and key in plain:
            del plain[key]
            track.put(seq, key, None, None)
        else:
            plain[key] = seq
            track.put(seq, key, seq, (track.slot(key), seq))
        if seq % 97 == 0:
            instants[seq] = dict(plain)
    assert len(track._frames) > 3
    for seq, expected in instants.items():
        rows = track.rows[track.versions_at(seq)]
        assert {track.keys[slot]: value for slot, value in rows.tolist()} == expected


def test_time_and_sequence_lead_to_each_other():
    index = indexed(placements())
    for seq in range(1, index.last + 1):
        assert seq_at(index, time_at(index, seq)) == seq
    assert seq_at(index, 0) == 1
    assert seq_at(index, 1 << 50) == index.last


def test_a_frame_is_the_same_as_bytes_and_as_values():
    index = indexed(migration())
    one = frame(index, 9)
    body, values = as_bytes(one), as_values(one)
    about, arrays = unpacked(body)
    assert about["at"] == 9
    for name, array in arrays.items():
        kind, column = name.split(".")
        assert array.tolist() == values[kind][column], name


def test_no_instant_of_five_thousand_nodes_costs_more_than_a_fraction_of_150_milliseconds():
    """CPU of this thread, whatever else the machine does: of everything at an instant, and of what differs between two, as bytes."""
    index, dice, costs = indexed(large(5000, churn=300)), random.Random(3), []
    for _ in range(30):
        one, other = (dice.randrange(1, index.last + 1) for _ in range(2))
        for since in (None, other):
            began = time.thread_time()
            as_bytes(frame(index, one, since))
            costs.append(time.thread_time() - began)
    assert sorted(costs)[len(costs) // 2] < 0.05, costs
