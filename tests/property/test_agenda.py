"""What is due is kept incrementally; after any history, and inside any draft, it is what looking at everything would say."""

from domain.build import NOW, configured, pod, replica_of, reservation, shape, then
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from property.test_fold import begin, facts

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Move, Packing
from restow.domain import config, gc
from restow.domain.decider import decide_all
from restow.domain.gc.agenda import Agenda, next_of
from restow.domain.snapshot import dump, load

NONE = Packing(0, 0, 0, 0, 0, 0)
SPAN = 40
PLAN = e.Planned("x", "Defragmentation", tuple(Move(f"x-{i}", f"m{i}", "default", f"m{i}", "n0", "n1") for i in range(2)), NONE, NONE)

ids = st.sampled_from(["x-0", "x-1"])


@st.composite
def ends(draw):
    """What moves deadlines: of holds of migrations and of users', seen, reviewed, ended, and the configuration."""
    id, generation = draw(ids), draw(st.integers(1, 3))
    name = draw(st.sampled_from(["r0", "r1", f"hold-{id}"]))
    migration = id if name.startswith("hold") else ""
    deleting = draw(st.sampled_from([0, 0, 0, NOW]))
    rules = config.GcConfig(retention=draw(st.integers(0, SPAN)), period=draw(st.sampled_from([0, 0, 1, 7, 16])))
    return draw(
        st.sampled_from(
            [
                reservation(name, ("t", 2, "half"), generation=generation, migration=migration, deleting=deleting, match_policy="Owner"),
                e.ReservationAccepted(name, generation, 1, NOW + draw(st.integers(0, SPAN))),
                e.ReservationRefused(name, generation, "InvalidSpec", "no"),
                e.ReservationGone(name),
                e.Expired(name),
                e.Collected(name, "Retention"),
                configured("gc", rules),
                e.Holding(id, NOW + SPAN),
                e.Held(id),
                e.Evicting(id, NOW + SPAN),
                e.Evicted(id, NOW + SPAN),
                (e.Holding(id, NOW), e.Held(id), e.Evicting(id, NOW), e.Evicted(id, NOW), e.Landed(id, "p0", "n1")),
                (e.Holding(id, NOW), e.Held(id), e.Evicting(id, NOW), e.Evicted(id, NOW), e.TurningBack(id, NOW + SPAN, "HoldLost", "")),
                e.MigrationFailed(id, "HoldTimeout"),
                e.HandedOver(name, draw(st.sampled_from(["t-0", "t-1"])), draw(st.sampled_from(["p0", "p1", "p2"])), "n1"),
                e.HoldPlaced(name, draw(st.sampled_from(["t-0", "t-1"])), "n1", ()),
            ]
        )
    )


def brute(state, now):
    found = [(record.order, *coming) for record in state.reservations.values() if (coming := next_of(state, record))]
    events = [event for _, at, event in sorted(found, key=lambda x: x[0]) if at <= now]
    return min((at for _, at, _ in found), default=None), events


def asked(state, now):
    return gc.decider.deadline(state), gc.decider.decide(state, c.Collect(now))


@settings(max_examples=examples(80), deadline=None)
@for_all(st.lists(st.tuples(st.one_of(ends(), ends(), facts()), st.integers(0, 3)), min_size=5, max_size=60), st.data())
def test_what_is_due_is_what_looking_at_everything_would_say(history, data):
    state = then(begin(), [pod(f"m{i}", "small", node="n0", owner=replica_of("web")) for i in range(2)], shape("s"), PLAN)
    now = NOW
    for event, later in history:
        now += later
        then(state, event, time=now)
        if data.draw(st.booleans()):
            when = NOW + data.draw(st.integers(0, 2 * SPAN))
            assert asked(state, when) == brute(state, when)
        if data.draw(st.booleans()):
            later = c.Collect(now + data.draw(st.integers(0, SPAN)))
            others = [c.Configure(config.text_of(config.GcConfig(retention=1)))] if data.draw(st.booleans()) else []
            decide_all(state, gc.decider, [c.Collect(now), *others, later])
    for when in (now, now + SPAN, now + 2 * SPAN):
        assert asked(state, when) == brute(state, when) == asked(load(dump(state)), when)
        due = gc.decider.due(state, when)
        assert (due is not None) == bool(brute(state, when)[1])
    while events := asked(state, now + 2 * SPAN)[1]:
        then(state, events, time=now + 2 * SPAN)
    assert Agenda.of(state).due(state, now + 2 * SPAN, 10) == []
