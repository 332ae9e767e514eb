"""Which Reservations are accepted, and what an update may change."""

from dataclasses import dataclass

import pytest
from domain.build import NOW, given, node, owner, reservation, run, shape, then
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts import values as v
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.records import ReservationPhase, SlotPhase


def reviewed(state):
    return run(state, reservations.decider, c.Review(NOW))


def verdict(*tasks, before=None, **spec):
    """Reason and message of a refusal, ("", "") where it is accepted."""
    state = given(node("a"), shape("s"), shape("gpu", gpu=(1, 500)))
    if before is not None:
        then(state, before)
        reviewed(state)
    then(state, reservation("r", *(tasks or [("t", 1, "s")]), generation=2, **spec))
    (event,) = reviewed(state)
    return (event.reason, event.message) if isinstance(event, e.ReservationRefused) else ("", "")


def selector(*expressions):
    return (v.OwnerRule(selector=v.LabelSelector(expressions=tuple(expressions))),)


@pytest.mark.parametrize("policy", ["Aligned", "Restricted", "Covering"])
@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_whatever_both_doors_can_say_is_accepted(policy, once, early):
    taints = (v.Taint("k", "PreferNoSchedule"), v.Taint("k", "NoExecute", "v"))
    assert verdict(allocate_policy=policy, allocate_once=once, pre_allocation=early, unschedulable=True, taints=taints) == ("", "")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"owners": ()}, "spec.owners: is empty; allowed: at least one owner, else nobody could use it"),
        ({"owners": (owner(a="b"),) * 65}, "spec.owners: 65 of them; allowed: at most 64"),
        ({"owners": (v.OwnerRule(object=v.ObjectRef(api_version="v1")),)}, "spec.owners[0].object: refers to nothing; allowed: a kind, name, uid or namespace"),
        ({"owners": (owner(a="b"), v.OwnerRule(controller=v.ObjectRef(api_version="batch/v1")))}, "spec.owners[1].controller: refers to nothing; allowed: a kind, name or uid"),
        ({"owners": selector(v.Expression("a", "Like", ("b",)))}, "spec.owners[0].labelSelector.matchExpressions, key 'a': operator 'Like'; allowed: In, NotIn, Exists, DoesNotExist"),
        ({"owners": selector(v.Expression("a", "In"))}, "spec.owners[0].labelSelector.matchExpressions, key 'a': 0 values; allowed with In: one or more"),
        ({"owners": selector(v.Expression("a", "Exists", ("b",)))}, "spec.owners[0].labelSelector.matchExpressions, key 'a': 1 values; allowed with Exists: none"),
        ({"owners": selector(v.Expression("", "Exists"))}, "spec.owners[0].labelSelector.matchExpressions, key '': has no key; allowed: a label's name"),
        ({"ttl": -1}, "spec.ttl: -1 ms; allowed: 0 (no ttl) or more"),
        ({"min_available": 2}, "spec.minAvailable: 2; allowed: 0 (all of them) to 1, the sum of replicas"),
        ({"taints": (v.Taint("", "NoSchedule"),)}, "spec.taints[0].key: is empty; allowed: a key"),
        ({"taints": (v.Taint("k", "Never"),)}, "spec.taints[0].effect: 'Never'; allowed: NoSchedule, PreferNoSchedule, NoExecute"),
        ({"taints": (v.Taint("k", "NoSchedule"),) * 33}, "spec.taints: 33 of them; allowed: at most 32"),
        ({"restricted": ("cpu", "restow.dev/gpu-milli")}, "metadata.annotations[scheduling.koordinator.sh/reservation-restricted-options]: nvidia.com/gpu; allowed: what the template requests: cpu, memory"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_by_path_and_value(spec, message):
    assert verdict(**spec) == ("InvalidSpec", message)


@pytest.mark.parametrize("name", ["A", "a b", "-a", "a-", "a\n", "a" * 64, "é"])
def test_a_task_has_a_name_that_may_be_part_of_others(name):
    reason, message = verdict((name, 1, "s"))
    assert (reason, message.partition(": ")[0]) == ("InvalidSpec", "spec.tasks[0].name")
    assert len(message) < 160


@pytest.mark.parametrize("tasks", [[("t", 2, "s")], [("t", 1, "s"), ("u", 1, "s")]])
def test_several_places_are_handed_over_once_each(tasks):
    reason, message = verdict(*tasks, allocate_once=False)
    assert (reason, message.partition(";")[0]) == ("InvalidSpec", "spec.allocateOnce: false")


def test_restricted_may_name_what_one_of_the_templates_requests():
    assert verdict(("t", 1, "s"), ("u", 1, "gpu"), restricted=("restow.dev/gpu-milli",)) == ("", "")


@pytest.mark.parametrize("once", [True, False])
def test_allocate_once_stays_as_it_was_accepted(once):
    said = str(not once).lower()
    assert verdict(before=reservation("r", ("t", 1, "s"), allocate_once=once), allocate_once=not once) == (
        "InvalidSpec",
        f"spec.allocateOnce: {said}; allowed: {str(once).lower()}, as it was accepted (make another Reservation)",
    )


def test_allocate_once_of_what_was_refused_is_free():
    wrong = reservation("r", ("t", 1, "s"), allocate_once=False, owners=())
    assert verdict(before=wrong, allocate_once=True) == ("", "")


# -- labels and annotations: what changes without a new generation -------------------------------------------------------


@dataclass
class World:
    """A node, and a Reservation `r` of one place that is held."""

    def __post_init__(self):
        self.first = reservation("r", ("t", 1, "s"))
        self.state = given(node("a"), shape("s"), self.first)
        reviewed(self.state)
        run(self.state, session.decider, c.Schedule(NOW))

    def observe(self, **spec):
        """The object with these labels or annotations, which make no new generation."""
        self.first = replace(self.first, spec=replace(self.first.spec, **spec))
        then(self.state, self.first)
        return reviewed(self.state)

    @property
    def phase(self):
        return self.state.phases["r"].phase

    @property
    def place(self):
        return self.state.slots["r"]["t-0"].phase


def test_what_an_annotation_changes_is_reviewed_again_and_holds_on():
    w = World()
    (event,) = w.observe(restricted=("cpu",))
    assert event == e.ReservationAccepted("r", 1, 1, event.expires, 1)
    assert (w.phase, w.place) == (ReservationPhase.AVAILABLE, SlotPhase.HELD)
    assert w.state.reservations["r"].spec.restricted == ("cpu",)
    assert w.observe() == []


def test_it_stays_in_force_until_the_review():
    w = World()
    then(w.state, replace(w.first, spec=replace(w.first.spec, restricted=("cpu",))))
    assert w.phase is ReservationPhase.AVAILABLE
    assert w.state.reservations["r"].spec.restricted == ()


def test_a_review_of_what_it_said_before_is_void():
    w = World()
    then(w.state, replace(w.first, spec=replace(w.first.spec, restricted=("cpu",))))
    then(w.state, e.ReservationAccepted("r", 1, 1, 0, 0))
    assert w.state.void["reservation.accepted"] == 1
    assert w.state.reservations["r"].spec.restricted == ()
    assert len(reviewed(w.state)) == 1


def test_an_annotation_that_contradicts_the_spec_fails_it_and_its_removal_makes_it_valid_again():
    w = World()
    (event,) = w.observe(restricted=("nvidia.com/none",))
    assert isinstance(event, e.ReservationRefused)
    assert (w.phase, w.state.phases["r"].reason) == (ReservationPhase.FAILED, "InvalidSpec")
    run(w.state, session.decider, c.Schedule(NOW))
    assert not w.state.table.reserved.any()
    (event,) = w.observe(restricted=())
    assert isinstance(event, e.ReservationAccepted)
    run(w.state, session.decider, c.Schedule(NOW))
    assert (w.phase, w.place) == (ReservationPhase.AVAILABLE, SlotPhase.HELD)


def test_a_label_gives_a_reservation_no_second_life():
    """What was lost with its node stays lost (RULES G-1); only a new generation asks anew."""
    w = World()
    then(w.state, e.NodeGone("a"))
    run(w.state, session.decider, c.Schedule(NOW))
    assert w.phase is ReservationPhase.FAILED
    then(w.state, node("b"))
    w.observe(tasks=tuple(replace(task, labels={"new": "label"}) for task in w.first.spec.tasks))
    run(w.state, session.decider, c.Schedule(NOW))
    assert w.phase is ReservationPhase.FAILED
    assert not w.state.table.reserved.any()


def test_other_labels_are_a_fact_and_no_review():
    w = World()
    then(w.state, replace(w.first, labels={"a": "b"}))
    assert reviewed(w.state) == []
    assert w.state.reservations["r"].fact.labels == {"a": "b"}
