"""What pods have in common stands once in a snapshot, and once in the memory of who has loaded it."""

from domain.build import given, node, pod, replica_of, shape

from restow.contracts.values import DeviceShare
from restow.domain import snapshot
from restow.domain.state import ClusterState


def world(pods: int) -> ClusterState:
    labels = {"app": "web", "pod-template-hash": "5d4f8c"}
    return given(
        node("a"), node("b"), shape("s"), shape("g", gpu=(1, 1000)),
        *(pod(f"00000000-0000-4000-8000-{i:012d}", node="ab"[i % 2], owner=replica_of("web"), labels=labels) for i in range(pods)),
        pod("other", "g", "a", devices=(DeviceShare(0, 1000),)), pod("waits"),
    )  # fmt: skip


def test_a_loaded_state_is_the_one_that_was_stored():
    state = world(10)
    body = snapshot.dump(state)
    again = snapshot.load(body)
    for name in ("pods", "charges", "owned", "on_node", "queue"):
        assert list(getattr(again, name).items()) == list(getattr(state, name).items()), name
    assert snapshot.dump(again) == body


def test_no_pods_are_none():
    assert snapshot.load(snapshot.dump(ClusterState())).pods == {}


def test_pods_that_are_alike_share_what_they_have_in_common():
    state = snapshot.load(snapshot.dump(world(10)))
    first, _, third, *_ = (pod.fact for pod in state.pods.values())
    live = state.pods[third.pod].live
    assert first.labels is third.labels
    assert first.owner is third.owner
    assert first.node is third.node is live.node is state.charges[third.pod].node
    assert live.pod is third.pod


def test_each_pod_more_takes_little_more_than_its_uid_and_its_name():
    few, many = (len(snapshot.dump(world(pods))) for pods in (10, 1_010))
    assert (many - few) / 1_000 < 110
