"""What one thing was over the log is what the state says at every instant."""

import pytest
from console.browser import WIDE, browser, needs_chromium
from console.conftest import Opened
from console.test_plan_maps import index_of
from msgspec.structs import replace
from replay.handmade import LOG_ID, Handmade, migration, node, placements, pod, shape, time_at
from replay.world import World

from restow.console import belts
from restow.console.belts import belt
from restow.console.view import view
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.replay.source import ListSource
from restow.replay.state_at import state_at


def at_each(log, path, at=None):
    """What the belt says after each sequence; None where there was none."""
    index = index_of(log)
    spans = belt(index, path, at or index.last)["spans"]
    assert [one["time"] for one in spans] == sorted(one["time"] for one in spans)
    assert all(one["time"] <= one["until"] for one in spans)
    found = {}
    for seq in range(1, index.last + 1):
        now = [one for one in spans if one["seq"] <= seq and one["until"] > index.commits["time"][seq - 1]]
        last = spans[-1]
        found[seq] = now[-1]["what"] if now else last["what"] if last["until"] == index.latest == index.commits["time"][seq - 1] and last["seq"] <= seq else None
    return found


def nodes_by_state(log, name):
    found = {}
    for seq in range(1, log.seq + 1):
        shown = view(state_at(log.source(), seq=seq))
        row = shown.nodes.get(name)
        held = any(hold.node == name for hold in shown.holds.values())
        busy = any(one.node == name for one in shown.pods.values())
        found[seq] = None if row is None else "not ready" if not row.ready else "cordoned" if row.closed else "held" if held else "in use" if busy else "empty"
    return found


def changing():
    """A node that comes, is used, is cordoned, is not ready, and goes; and comes again."""
    log = Handmade()
    log.facts(node("n"), kind="nodes")
    log.facts(shape(), replace(pod("p"), node="n", phase="Running", ready=True))
    log.facts(replace(node("n"), unschedulable=True), kind="nodes")
    log.facts(replace(node("n"), ready=False), kind="nodes")
    log.facts(node("n"), kind="nodes")
    log.facts(e.PodGone("uid-p"))
    log.facts(e.NodeGone("n"), kind="nodes")
    log.facts(node("m"), kind="nodes")
    log.facts(node("n"), kind="nodes")
    return log


@pytest.mark.parametrize(("log", "name"), [(changing(), "n"), (migration(), "a"), (migration(), "b"), (placements(), "a"), (placements(), "b")])
def test_a_node_is_what_the_state_says_at_every_instant(log, name):
    assert at_each(log, f"node/{name}") == nodes_by_state(log, name)


def test_a_node_that_was_gone_for_a_while_has_a_gap_there():
    assert list(at_each(changing(), "node/n").values()) == ["empty", "in use", "cordoned", "not ready", "in use", "empty", None, None, "empty"]


def test_a_pod_waits_is_bound_runs_is_moved_and_goes():
    assert list(at_each(placements(), "pod/shop/web-1").values()) == [None, None, "waiting", "bound", "bound", "running", "running"]
    moved = at_each(migration(), "pod/shop/web-old")
    assert [what for what in dict.fromkeys(moved.values()) if what] == ["running", "moving"]
    states = {seq: state_at(migration().source(), seq=seq) for seq in moved}
    for seq, what in moved.items():
        there = "uid-web-old" in states[seq].pods
        under_way = any(str(one.step) in ("holding", "held", "evicting", "evicted", "aborting") for one in states[seq].migrations.values())
        assert what == ("moving" if there and under_way else "running" if there else None), seq


def test_a_move_has_its_steps():
    log = migration()
    steps = {seq: next((str(one.step) for one in state_at(log.source(), seq=seq).migrations.values()), None) for seq in range(1, log.seq + 1)}
    assert at_each(log, "migration/p1-1") == steps


def of_pods(log, kind, name):
    """By a count of our own on the state at every sequence: what the pods of a queue or a PodGroup are."""
    found, came = {}, False
    for seq in range(1, log.seq + 1):
        pods = [one for one in view(state_at(log.source(), seq=seq)).pods.values() if getattr(one, kind) == name]
        came = came or bool(pods)
        there = [one for one in pods if one.status not in ("Terminating", "Succeeded", "Failed")]
        waits = sum(not one.node for one in there)
        placed = [one for one in there if one.node]
        if kind == "queue":
            found[seq] = ("waiting" if waits else "in use" if placed else "empty") if came else None
        elif not there:
            found[seq] = "ended" if pods else None
        else:
            ready = sum(one.ready for one in placed)
            found[seq] = "waiting" if waits else "running" if ready == len(there) else "not ready" if ready else "bound"
    return found


def gangs():
    """Pods of two gangs come, get nodes one by one, are ready, and go; one changes its gang."""
    log = Handmade()
    log.facts(node("a"), node("b"), shape())
    log.facts(*(e.PodGroupObserved("shop", name, f"uid-{name}", time_at(1), min_member=2) for name in ("one", "two")))
    group = {"scheduling.k8s.io/group-name": "one"}
    pods = {name: replace(pod(name), annotations=group) for name in ("x", "y", "z")}
    log.facts(pods["x"], pods["y"])
    log.facts(replace(pods["z"], annotations={"scheduling.k8s.io/group-name": "two"}))
    log.decide("session", c.Schedule(time_at(5)), e.PodPlaced("uid-x", "a"))
    log.decide("session", c.Schedule(time_at(6)), e.PodPlaced("uid-y", "b"))
    log.facts(e.PodChanged("uid-x", "a", "Running", True), e.PodChanged("uid-y", "b", "Running", False))
    log.facts(e.PodChanged("uid-y", "b", "Running", True))
    log.facts(pods["z"])
    log.facts(e.PodChanged("uid-z", "b", "Running", True))
    log.facts(e.PodChanged("uid-x", "a", "Succeeded"))
    log.facts(e.PodChanged("uid-y", "b", "Running", True, time_at(11)), e.PodChanged("uid-z", "b", "Failed"))
    log.facts(*(e.PodGone(f"uid-{name}") for name in "xyz"))
    log.facts(node("a"))
    return log


@pytest.mark.parametrize("name", ["shop/one", "shop/two"])
def test_a_gang_is_what_its_pods_are_at_every_instant(name):
    said = at_each(gangs(), f"podgroup/{name}")
    assert said == of_pods(gangs(), "podgroup", name)
    if name == "shop/one":
        assert [what for what in dict.fromkeys(said.values()) if what] == ["waiting", "bound", "not ready", "running", "ended"]
        texts = [one["text"] for one in belt(index_of(gangs()), "podgroup/shop/one", 99)["spans"]]
        assert texts[:3] == ["0 of 2 pods have a node", "1 of 2 pods have a node", "0 of 2 pods are ready"]


@pytest.mark.parametrize("log", [gangs(), placements(), migration(), World(1, nodes=4).play(24), World(7, nodes=2).play(24)], ids=["gangs", "placements", "a move", "a world", "a full one"])
def test_a_queue_is_what_its_pods_are_at_every_instant(log):
    assert at_each(log, "queue/default") == of_pods(log, "queue", "default")


@pytest.mark.parametrize("log", [migration(), World(1, nodes=4).play(24), World(5, nodes=8).play(30)], ids=["a move", "a world", "another one"])
def test_a_reservation_holds_what_the_state_says_at_every_instant(log):
    """Of each, its slots and their nodes."""
    views = {seq: view(state_at(log.source(), seq=seq)).holds for seq in range(1, log.seq + 1)}
    named = dict.fromkeys(hold.reservation for holds in views.values() for hold in holds.values())
    assert named
    for name in named:
        held = {seq: [one for one in holds.values() if one.reservation == name] for seq, holds in views.items()}
        last = max(seq for seq, rows in held.items() if rows)
        spans = belt(index_of(log), f"reservation/{name}", last)["spans"]
        assert at_each(log, f"reservation/{name}", last) == {seq: "waiting" if any(one.phase == "Waiting" for one in rows) else "held" if rows else None for seq, rows in held.items()}
        for span in spans:
            rows = held[span["seq"]]
            assert span["text"].startswith(f"{len(rows)} slot{'s' * (len(rows) > 1)} on ")
            assert all(node in span["text"] for node in {one.node for one in rows}) or "more nodes" in span["text"]


def test_only_the_latest_are_told_and_the_others_are_counted(monkeypatch):
    whole = belt(index_of(changing()), "node/n", 9)
    monkeypatch.setattr(belts, "MOST", 3)
    short = belt(index_of(changing()), "node/n", 9)
    assert short["spans"] == whole["spans"][-3:]
    assert (whole["earlier"], short["earlier"]) == (0, len(whole["spans"]) - 3)


async def test_what_has_none_is_not_found(looking):
    async with looking(ListSource(migration().records, log_id=LOG_ID)) as client:
        for what in ("node/none", "pod/shop/none", "queue/none", "podgroup/shop/none", "reservation/shop/none", "plan/p1", "a"):
            assert (await client.get("/api/v1/belt", what=what))[0] == 404, what
        for what in ("", "x" * 601):
            assert (await client.get("/api/v1/belt", what=what))[0] == 400


@needs_chromium
async def test_gangs_and_what_is_held_open_beside_the_map(looking):
    """From where they are named: who waits, a pod, a node, a move, the list of Reservations."""
    world = World(1, nodes=4).play(24)
    seq, hold = next((seq, hold) for seq in range(world.seq, 0, -1) for hold in view(state_at(world.source(), seq=seq)).holds.values() if not hold.migration)
    async with looking(gangs().source()) as client, browser(viewport=WIDE) as page:
        it = Opened(page, client)
        await it.go("#view=queues&at=9")
        await page.get_by_role("button", name="shop/one", exact=True).click()
        await page.wait_for_selector(".panel .belt button.running")
        assert "PodGroup" in await it.text(".panel .title")
        assert "it needs 2 at the same time: 2 ready, 1 wait" in await it.text(".panel .verdict")
        await page.get_by_role("button", name="shop/x", exact=True).click()
        await page.locator(".panel dl").get_by_role("button", name="shop/one").click()
        await page.locator(".belt button.ended").click()
        await it.until("document.querySelector('.was-text').innerText.includes('ended')")
        await page.fill("#search", "one")
        await page.get_by_role("option", name="podgroup shop/one").wait_for()
        it.is_quiet()
    async with looking(world.source()) as client, browser(viewport=WIDE) as page:
        it = Opened(page, client)
        await it.go(f"#at={seq}&show=node/{hold.node}")
        await page.locator(".panel .items").get_by_role("button", name=hold.reservation, exact=True).first.click()
        await page.wait_for_selector(".panel .belt button.held")
        assert await page.locator(".panel .items button", has_text=hold.node).count()
        await it.go(f"#at={seq}&view=queues")
        await page.locator(".calendar").get_by_role("button", name=hold.reservation, exact=True).click()
        await page.wait_for_selector(".panel .belt button.held")
        await page.fill("#search", hold.reservation)
        await page.get_by_role("option", name=f"reservation {hold.reservation}").wait_for()
        it.is_quiet()
