"""Why something is as it is: story, causes, verdict."""

import pytest
from msgspec.structs import replace
from replay.handmade import (
    PACKING,
    SHAPE,
    Handmade,
    fragmented,
    migration,
    node,
    observed,
    placements,
    pod,
    proposed,
    shape,
    time_at,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain.decider import decide
from restow.domain.migration import decider as migration_decider
from restow.domain.session import decider as session_decider
from restow.domain.session.verdict.values import Block, Verdict
from restow.replay.find import Ambiguous, NotFound, find
from restow.replay.state_at import state_at
from restow.replay.verdicts import waiting_lines
from restow.replay.why import why


def told(answer):
    return [(entry.seq, entry.event) for entry in answer.story]


def causes(answer):
    return [link.seq for link in answer.chain]


def test_a_placed_pod_leads_back_to_the_fact_that_it_was_seen():
    answer = why(placements().source(), "pod/shop/web-1")
    assert told(answer) == [(3, "cluster.pod_observed"), (4, "session.pod_placed"), (6, "cluster.pod_changed")]
    assert [link.text for link in answer.chain] == ["shop/web-1 is placed on a", "pod shop/web-1 is seen: Pending"]
    assert answer.verdict[0] == "Running, ready, on a"
    assert answer.verdict[1].startswith("a was chosen out of 2 nodes with a score of ")


def test_a_successor_leads_back_through_hold_and_plan_to_the_trigger():
    answer = why(migration().source(), "web-new")
    assert causes(answer) == [12, 7, 6, 5, 4, 3, 0]
    assert answer.chain[-1].text == "trigger: api"
    assert answer.chain[0].text == "slot task-0 of shop/restow-p1-1 is handed over to shop/web-new on b"
    assert answer.verdict == [
        "Running, ready, on b",
        "uses 1 cpu and 1Gi memory of slot task-0 of reservation shop/restow-p1-1",
        "came from a, where it was shop/web-old, to b, to pack nodes tighter (migration p1-1)",
    ]


def test_an_evicted_pod_leads_back_to_the_plan_and_names_its_successor():
    answer = why(migration().source(), "web-old")
    assert causes(answer) == [13, 11, 8, 8, 7, 4, 3, 0]
    assert answer.verdict[0] == "gone since sequence 13, 2026-01-01T00:00:13.000Z"
    assert answer.story[-1].text == "p1-1: landed as shop/web-new on b"


def test_a_migration_tells_of_its_pod_hold_and_successor():
    answer = why(migration().source(), "p1-1")
    assert [seq for seq, _ in told(answer)] == [3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14, 15]
    assert causes(answer) == [15, 12, 11, 8, 8, 7, 4, 3, 0]
    assert answer.verdict == [
        "landed since 2026-01-01T00:00:15.000Z: shop/web-old from a to b",
        "it was planned to pack nodes tighter",
        "its successor is shop/web-new",
    ]


def test_a_migration_whose_pod_nobody_made_again_says_where_to_look():
    log = migration(lands=False)
    log.decide("migration", c.Advance(time_at(99)), e.NotRecreated("p1-1"))
    (_, _, said) = why(log.source(), "p1-1").verdict
    assert said == (
        "no pod came in time that may follow it: its controller made none (what the API refuses is in the controller's events: kubectl describe), "
        "or admission made another pod of it"
    )


def test_a_reservation_tells_who_got_it():
    answer = why(migration().source(), "reservation/restow-p1-1")
    assert causes(answer) == [12, 7, 6, 5, 4, 3, 0]
    assert answer.verdict[-1] == "slot task-0: used by shop/web-new on b"


def test_of_a_place_whose_pod_has_gone_it_is_told_who_used_it():
    log = migration()
    log.facts(e.PodGone("uid-web-new"))
    assert why(log.source(), "reservation/restow-p1-1").verdict[-1] == "slot task-0: was used by shop/web-new on b"


def waiting():
    """Two pods of eight cores on nodes of four."""
    log = Handmade()
    log.facts(node("a"), replace(node("b"), unschedulable=True), kind="nodes")
    log.facts(shape(8000), pod("big-1"), pod("big-2"))
    reasons = {"Insufficient cpu": 1, "node(s) were unschedulable": 1}
    log.decide("session", c.Schedule(time_at(3)), e.Unfit(SHAPE, 2, reasons, ("uid-big-1", "uid-big-2")), cause="2/0")
    log.facts(replace(node("c"), ready=False), kind="nodes")
    log.decide("session", c.Schedule(time_at(5)), e.Unfit(SHAPE, 3, {**reasons, "node(s) were not ready": 1}))
    return log


def test_a_waiting_pod_has_the_verdict_at_the_read_of_what_was_told():
    answer = why(waiting().source(), "big-1")
    assert told(answer) == [(2, "cluster.pod_observed"), (3, "session.unfit"), (5, "session.unfit")]
    assert answer.decided_at == 4
    assert answer.unfit.reasons == answer.story[-1].detail.reasons
    assert answer.verdict[0].startswith("waits: 0/3 nodes are available: 1 Insufficient cpu")
    assert "would fit with a cpu request of at most 4: 1 node" in answer.verdict


GANG = e.PodGroupObserved("shop", "g", "uid-g", time_at(2), min_member=3, phase="Inqueue")


def member(name):
    return replace(pod(name), annotations={"scheduling.k8s.io/group-name": "g"})


def gang():
    """Three pods of two cores that go together, on nodes of four and two; then one core more than they need."""
    log = Handmade()
    log.facts(node("a"), node("b", 1000), kind="nodes")
    log.facts(shape(2000), GANG, member("m-0"), member("m-1"), member("m-2"), pod("lone"))
    told = decide(state_at(log.source()), session_decider, c.Schedule(time_at(3), 1_000))
    log.decide("session", c.Schedule(time_at(3), 1_000), *told, cause="2/0")
    return log


def test_a_gang_s_pod_says_how_far_the_gang_gets_and_what_would_help():
    answer = why(gang().source(), "m-1")
    assert told(answer) == [(2, "cluster.pod_observed"), (3, "session.withheld")]
    assert answer.verdict == [
        "alone it fits on 1 of 2 nodes: 1 Insufficient cpu",
        "its gang shop/g needs 3 at the same time: 0 ready, 3 wait, 1 of them fit now",
        "the first that does not fit beside them, shop/m-1: 0/2 nodes are available: 2 Insufficient cpu.",
        "would fit with 1 more empty node like a",
        "would fit with a minMember of at most 1",
        "would fit with a cpu request of at most 1 each",
    ]
    assert answer.chain[0].text.startswith("gang shop/g waits: the gang needs 3 pods together")


def test_a_podgroup_tells_its_own_story_and_that_of_its_pods_in_few_lines():
    log = gang()
    log.facts(node("c"), kind="nodes")
    placed = decide(state_at(log.source()), session_decider, c.Schedule(time_at(5), 1_000))
    log.decide("session", c.Schedule(time_at(5), 1_000), *placed, cause="4/0")
    before = why(gang().source(), "podgroup/shop/g")
    assert before.verdict[0] == "Inqueue: 3 pods, 0 running, 0 succeeded, 0 failed; minMember 3, queue default"
    assert "would start with 1 more empty node like a" in before.verdict
    assert before.gang.fit == 1
    answer = why(log.source(), "pg/g")
    assert answer.verdict == ["Running: 3 pods, 0 running, 0 succeeded, 0 failed; minMember 3, queue default"]
    assert [(entry.seq, entry.event, entry.own) for entry in answer.story] == [
        (2, "cluster.pod_group_observed", True), (2, "cluster.pod_observed", False), (3, "session.withheld", True),
        (5, "session.pod_placed", False),
    ]  # fmt: skip
    assert answer.story[-1].text.endswith("and 2 more of its pods alike")
    assert causes(answer)[:2] == [5, 2]


def test_a_podgroup_that_is_gone_says_so():
    log = gang()
    log.facts(e.PodGroupGone("shop", "g"), kind="podgroups")
    assert why(log.source(), "podgroup/g").verdict == ["gone since sequence 4, 2026-01-01T00:00:04.000Z"]


def test_a_nominated_pod_says_who_goes_for_it_and_the_victim_for_whom():
    log = Handmade()
    log.facts(node("a", 1000), kind="nodes")
    running = replace(pod("low"), node="a", phase="Running", ready=True)
    log.facts(shape(), running, pod("high"))
    end = time_at(600)
    log.decide(
        "session", c.Schedule(time_at(3)), e.Preempted("uid-low", "uid-high", "preempt", "priority 10 above 1"),
        e.Nominated("uid-high", "a", end, victims=("uid-low",)),
    )  # fmt: skip
    answer = why(log.source(), "high")
    assert answer.verdict[:2] == [
        "will run on a: waits for 1 cpu there, until 2026-01-01T00:10:00.000Z",
        "evicted for it: shop/low",
    ]
    assert answer.chain[0].text == "shop/high is to run on a, once shop/low has gone; held until 2026-01-01T00:10:00Z"
    victim = why(log.source(), "low")
    assert victim.verdict[-1] == "is to be evicted for shop/high"
    assert victim.chain[0].text == "shop/low is to be evicted for shop/high (preempt): priority 10 above 1"


def test_what_waits_for_its_queue_says_so_first():
    log = Handmade()
    log.facts(node("a"), kind="nodes")
    queued = replace(pod("p"), annotations={"scheduling.volcano.sh/queue-name": "none"})
    log.facts(shape(), queued)
    command = c.Schedule(time_at(3), 1_000)
    log.decide("session", command, *decide(state_at(log.source()), session_decider, command))
    answer = why(log.source(), "p")
    assert answer.verdict == ["waits: queue none does not exist", "alone it fits on 1 of 1 node", "would fit with a queue named none"]
    assert answer.unfit.blocks[0].reason == "QueueNotFound"


def test_what_blocks_a_pod_and_takes_every_node_from_it_is_told_once():
    lost = 'persistentvolumeclaim "ghost" not found'
    blocked = Verdict("uid-p", "waiting", nodes=8, reasons={lost: 8}, blocks=(Block("Volumes", f"0/8 nodes are available: {lost}."),))
    assert waiting_lines(blocked) == [f"waits: 0/8 nodes are available: {lost}."]
    more = replace(blocked, reasons={lost: 8, "Insufficient cpu": 2})
    assert waiting_lines(more)[1:] == [f"also waits: 0/8 nodes are available: 2 Insufficient cpu, 8 {lost}."]


def test_a_pod_that_stayed_has_the_last_plan_s_verdict():
    log = fragmented()
    command = c.Defragment(time_at(4), "api", "p7")
    log.decide("migration", command, *decide(state_at(log.source()), migration_decider, command), cause="api")
    log.facts(node("d"), kind="nodes")
    stays = {name: why(log.source(), name).stays for name in ("lone", "bare", "b-1")}
    assert {name: (s.verdict, s.seq, s.moves) for name, s in stays.items()} == {
        "lone": ("Planned", 4, True),
        "bare": ("Bare", 4, False),
        "b-1": ("NotOnSource", 4, False),
    }
    assert why(log.source(), "b-1").verdict[-1] == "plan p7 (4) leaves it there: its node b was not a source"


def test_a_pod_that_was_placed_and_not_seen_on_its_node_has_the_plan_s_verdict_too():
    """The plan counts it: `kept` had it as Bare, and why said nothing."""
    log = fragmented()
    log.facts(node("d"), pod("placed"))
    log.decide("session", c.Schedule(time_at(4)), e.PodPlaced("uid-placed", "d"))
    command = c.Defragment(time_at(5), "api", "p7")
    (decision,) = decide(state_at(log.source()), migration_decider, command)
    log.decide("migration", command, decision)
    log.facts(replace(pod("placed"), node="d", phase="Running", ready=True), pod("late"))
    assert decision.kept["Bare"] == 2
    answer = why(log.source(), "placed")
    assert (answer.stays.verdict, answer.stays.seq) == ("Bare", 6)
    assert why(log.source(), "late").stays is None


def test_a_cause_in_the_log_is_followed():
    log = waiting()
    log.decide("session", c.Schedule(time_at(6)), e.PodPlaced("uid-big-2", "a"), cause="3/0")
    assert [link.text for link in why(log.source(), "big-2").chain][-1].startswith("pod shop/big-2 is seen")


def test_a_uid_a_prefix_of_it_and_a_name_mean_the_same():
    source = migration().source()
    assert find(source, "uid-web-new") == find(source, "shop/web-new") == find(source, "pods/web-new") == find(source, "uid-web-ne")


def test_the_latest_of_several_pods_with_one_name_is_meant():
    log = placements()
    log.facts(e.PodGone("uid-web-1"), pod("web-1", uid="uid-again"))
    subject = find(log.source(), "web-1")
    assert (subject.id, subject.earlier) == ("uid-again", ("uid-web-1",))


def test_an_ambiguous_name_lists_its_candidates():
    log = placements()
    log.facts(pod("web-1", namespace="other", uid="uid-other"))
    with pytest.raises(Ambiguous) as error:
        find(log.source(), "web-1")
    assert [subject.label for subject in error.value.candidates] == ["pod shop/web-1", "pod other/web-1"]
    assert find(log.source(), "other/web-1").id == "uid-other"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nobody", "no pod, podgroup, reservation, migration, node or queue 'nobody'"),
        ("node/nobody", "no node 'nobody'"),
        ("pod/nobody", "cannot be read: `restow doctor` names it"),
        ("queue/nobody", "no queue 'nobody'"),
        ("deploy/shop/nobody", "no pod of Deployment 'nobody' in namespace shop"),
        ("rayjob/web-1", "'rayjob' was read as a namespace: kinds are pod, podgroup"),
        ("node/a/b", "names nothing"),
        ("reservation/web-1", "no reservation 'web-1'"),
        ("elsewhere/web-1", "in namespace elsewhere"),
        ("a/b/c/d", "names nothing"),
        ("pod/\udcff", "no pod"),
        ("", "names nothing"),
    ],
)
def test_what_is_not_there_is_refused_with_what_to_do(text, said):
    with pytest.raises(NotFound, match=said):
        find(placements().source(), text)


def test_a_node_tells_what_it_has_left_and_who_came_and_went():
    answer = why(migration().source(), "node/a")
    assert answer.verdict[0] == "ready"
    assert "0 pods, 0 slots held for others" in answer.verdict
    texts = [entry.text for entry in answer.story]
    assert texts[0] == "node a is seen: ready"
    assert any("shop/web-old" in text and "gone" in text for text in texts), texts
    assert any("p1-1 moves shop/web-old from a to b" in text for text in texts), texts
    assert [entry.text for entry in answer.story if entry.own] == ["node a is seen: ready"]


def test_a_node_that_holds_a_place_tells_of_it_and_of_its_next_pod():
    texts = [entry.text for entry in why(migration().source(), "no/b").story]
    assert any("restow-p1-1" in text for text in texts), texts
    assert any("handed over to shop/web-new on b" in text for text in texts), texts


def test_a_queue_tells_of_itself_and_of_its_pod_groups():
    log = Handmade()
    log.facts(e.QueueObserved("q", "uid-q", time_at(1), weight=2, capability={"cpu": 4_000}), kind="queues")
    log.facts(replace(GANG, queue="q"), replace(GANG, name="else", uid="uid-else"), kind="podgroups")
    answer = why(log.source(), "queue/q")
    assert answer.verdict[:2] == ["Open, weight 2", "PodGroups: 1 Inqueue"]
    assert "capability: 4 cpu" in answer.verdict
    assert [entry.event for entry in answer.story] == ["cluster.queue_observed", "cluster.pod_group_observed"]


def test_a_workload_means_its_pods():
    owner = OwnerRef("ReplicaSet", "web-5d9c7", "uid-rs", "apps/v1")
    log = Handmade()
    log.facts(node("a"), kind="nodes")
    log.facts(shape(1000), replace(pod("web-5d9c7-x"), owner=owner), replace(pod("other"), owner=replace(owner, name="other-5d9c7")))
    source = log.source()
    assert find(source, "deployment/shop/web").name == find(source, "deploy/web").name == find(source, "rs/web-5d9c7").name == "web-5d9c7-x"
    log.facts(replace(pod("web-5d9c7-y"), owner=owner))
    with pytest.raises(Ambiguous, match="may be any of 2"):
        find(log.source(), "deployment.apps/shop/web")


def test_a_move_that_was_only_observed_says_so():
    assert why(observed().source(), "p1-1").verdict == ["only observed: plan p1 was made in mode observe, in which nothing is moved"]
    entry = why(observed().source(), "p1-1").story[0]
    assert "1 move, only observed" in entry.text


def test_a_pod_says_which_plan_that_is_to_move_it_waits_for_a_person_though_others_were_made_since():
    log = proposed()
    assert any(line.startswith("plan p1 is to move it, and waits for a person since ") for line in why(log.source(), "pod/shop/web-old").verdict)
    log.decide("migration", c.Defragment(time_at(5), "api", "p2"), e.Planned("p2", "Defragmentation", (), PACKING, PACKING))
    assert sum("waits for a person" in line for line in why(log.source(), "pod/shop/web-old").verdict) == 1
    assert not any("waits for a person" in line for line in why(proposed("approved").source(), "pod/shop/web-old").verdict)
    assert not any("waits for a person" in line for line in why(proposed("rejected").source(), "pod/shop/web-old").verdict)


def test_a_move_that_waits_for_a_person_says_since_when_and_what_that_has_said():
    (waits,) = why(proposed().source(), "p1-1").verdict
    assert waits.startswith("waits for a person since ")
    assert waits.endswith(": `restow approve p1`, or `restow reject p1 --reason ...`")
    (declined,) = why(proposed("rejected").source(), "p1-1").verdict
    assert "declined: plan p1 was not approved (rejected by ada, " in declined
    assert declined.endswith(": not today)")
    assert any(entry.text == "ada approves plan p1: go" for entry in why(proposed("approved").source(), "p1-1").story)
