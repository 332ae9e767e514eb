"""Issue 4: what a pod costs does not depend on holds of others. Whatever owners are asked for, the index finds those Reservations
that a look at all of them would find; and of the pods that wait those are asked that a look at all of them would ask."""

from domain.build import NOW, given, node, pod, replica_of, reservation, run, shape, then
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Expression, LabelSelector, ObjectRef, OwnerRule
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.decider import decide, decide_all
from restow.domain.fold import apply
from restow.domain.reservation.hold_index import HoldIndex
from restow.domain.reservation.owner_matching import owned
from restow.domain.reservation.reservation_affinity import IGNORED
from restow.domain.session.opening import parked_owners

NAMESPACES = ("default", "else")
KEYS, VALUES = ("app", "tier", "team"), ("x", "y")
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)
names = st.sampled_from(["web-1", "web-2", "web"])
references = st.one_of(
    st.builds(lambda name: ObjectRef(name=name), names),
    st.builds(lambda name: ObjectRef(uid=f"uid-{name}"), names),
    st.builds(lambda kind, name: ObjectRef(kind, "default", name), st.sampled_from(["ReplicaSet", "Deployment", "Pod"]), names),
    st.just(ObjectRef(kind="Pod", name="p1")),
    st.just(ObjectRef(kind="Pod", namespace="else")),
    st.builds(lambda kind, version: ObjectRef(kind, api_version=version), st.sampled_from(["ReplicaSet", "Deployment", "Pod"]), st.sampled_from(["", "v1", "apps/v1"])),
)
expressions = st.sampled_from([(), (Expression("app", "Exists"),), (Expression("app", "NotIn", ("x",)),)])
selectors = st.builds(LabelSelector, labels, expressions)
rules = st.builds(OwnerRule, st.none() | references, st.none() | references, st.none() | selectors)
pods = st.builds(
    lambda name, namespace, labels, owner, ignoring: pod(
        name, namespace=namespace, labels=labels | ({IGNORED: "true"} if ignoring else {}), owner=owner and replica_of(owner)
    ),
    st.sampled_from(["p1", "p2", "p3", "p4"]), st.sampled_from(NAMESPACES), labels, st.none() | names, st.sampled_from([False, False, True]),
)  # fmt: skip
WORKLOADS = [e.WorkloadObserved(f"uid-{name}", "ReplicaSet", "default", name, replica_of("web", "Deployment")) for name in ("web-1", "web-2")]


@st.composite
def facts(draw):
    uid = draw(st.sampled_from(["r1", "r2", "r3"]))
    owners = tuple(draw(st.lists(rules, min_size=1, max_size=2)))
    return draw(
        st.sampled_from(
            [
                reservation(uid, ("t", 1, "s"), owners=owners, namespace=draw(st.sampled_from(("", *NAMESPACES))), match_policy="Owner"),
                e.ReservationGone(uid),
                draw(pods),
                e.PodGone(draw(st.sampled_from(["p1", "p2", "p3", "p4"]))),
                draw(st.sampled_from(WORKLOADS)),
                node("a", cpu=draw(st.sampled_from([0, 2_000]))),
            ]
        )
    )


def step(state, fact):
    """A fact, and what both services say to it."""
    then(state, fact)
    run(state, reservations.decider, c.Review(NOW))
    command = session.decider.due(state, NOW)
    if command is not None:
        decide_all(state, session.decider, [command, command])  # a draft, taken back
        run(state, session.decider, command)


@settings(max_examples=examples(150), deadline=None)
@for_all(st.lists(facts(), min_size=4, max_size=20))
def test_owners_are_found_without_a_look_at_all(history):
    state = given(node("a", cpu=2_000), shape("s"))
    for fact in history:
        step(state, fact)
        index = HoldIndex.of(state)
        accepted = [record for record in state.reservations.values() if record.spec is not None]
        for one in state.pods.values():
            mine = [record for record in accepted if owned(state, record, one.fact)]
            on_nodes = {record.fact.reservation for record in mine if any((record.fact.reservation, n) in of for n in ("t-0",) for of in state.held_on.values())}
            assert on_nodes == {uid for kind in index.classes(one.fact) for uid, _ in kind.all}
            assert not mine or index.may_own(one.fact)
            if state.parked.get(one.fact.pod) and (mine or one.fact.labels.get(IGNORED)):
                assert one.fact.pod in parked_owners(state)
        assert set(parked_owners(state)) <= set(state.parked)


# -- what the histories seldom lead to -------------------------------------------------------------------------------


def waiting(*facts):
    """Pods that find no capacity, and Reservations that are accepted and not held."""
    state = given(node("a", cpu=0), shape("s"), *facts)
    run(state, reservations.decider, c.Review(NOW))
    run(state, session.decider, c.Schedule(NOW))
    assert set(state.parked) == set(state.pods)
    return state


def test_a_pod_that_a_draft_has_let_in_is_still_asked_when_that_is_taken_back():
    mine = OwnerRule(selector=LabelSelector({"app": "x"}))
    asked = reservation("r1", ("t", 1, "s"), owners=(mine,), match_policy="Owner")
    state = waiting(asked, *[pod(name, labels={"app": "x"}) for name in ("p1", "p2")])
    then(state, node("a", cpu=1_000), e.HoldPlaced("r1", "t-0", "a"))
    assert sorted(parked_owners(state)) == ["p1", "p2"]
    with state.draft():
        apply(state, decide(state, session.decider, c.Schedule(NOW)))
        assert parked_owners(state) == ["p2"]
    assert sorted(parked_owners(state)) == ["p1", "p2"]


def test_a_pod_that_waits_is_asked_once_its_deployment_is_known():
    web = OwnerRule(controller=ObjectRef("Deployment", name="web"))
    asked = reservation("r1", ("t", 1, "s"), owners=(web,), match_policy="Owner")
    state = waiting(asked, pod("p1", owner=replica_of("web-1")), pod("p2", owner=replica_of("api-1")))
    then(state, node("a", cpu=1_000), e.HoldPlaced("r1", "t-0", "a"))
    assert parked_owners(state) == []
    then(state, WORKLOADS[0])
    assert parked_owners(state) == ["p1"]
    assert [(x.pod, x.slot) for x in run(state, session.decider, c.Schedule(NOW)) if isinstance(x, e.HandedOver)] == [("p1", "t-0")]
