"""The tour: a few instants of a log, found by rule, and the page that leads through them."""

import os
import signal
import subprocess

import pytest
from cli.conftest import RESTOW, export
from console.browser import needs_chromium
from console.logs_large import GPU, large
from msgspec.structs import replace
from replay.handmade import LOG_ID, Handmade, migration, node, observed, placements, pod, proposed, time_at
from replay.world import World

from restow.console.follow import Follower
from restow.console.frames import frame
from restow.console.index import Index
from restow.console.tour import tour
from restow.console.view import view
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import decode
from restow.contracts.values import DeviceRequest, PodShape
from restow.replay.source import ListSource
from restow.replay.state_at import state_at


def index_of(log):
    follower = Follower(ListSource(log.records, log_id=LOG_ID))
    follower._run()
    assert follower.error == ""
    return follower.index


def test_of_the_cluster_as_many_devices_are_free_as_the_map_says():
    """Also those of a node that takes no pods; of who waits only those that a pod may have."""
    log = Handmade()
    nodes = (replace(node(name), allocatable={"cpu": 8_000, "memory": 1 << 33, "pods": 110, GPU: 2_000}, devices=2) for name in "ab")
    log.facts(*(replace(one, unschedulable=one.name == "b") for one in nodes), kind="nodes")
    log.facts(e.ShapeDeclared("four", PodShape({"pods": 1, GPU: 4_000}, scheduler="restow", devices=DeviceRequest(4, 1_000))), replace(pod("big"), shape="four"))
    cluster, waits = tour(index_of(log))
    assert cluster.text.startswith("2 nodes with 4 devices, 4 of them free; ")
    assert "2 devices are free, and the most on one node that takes pods is 2." in waits.text


def test_a_move_is_shown_from_who_waits_to_what_it_came_to():
    stops = tour(index_of(migration(waits=True)))
    assert [(stop.at, stop.title, stop.show, stop.view) for stop in stops] == [
        (2, "The cluster", "", "map"),
        (2, "shop/job waits", "pod/shop/job", "map"),
        (3, "A plan of 1 move", "plan/p1", "map"),
        (7, "First the place is held", "migration/p1-1", "map"),
        (8, "Then the pod is evicted", "migration/p1-1", "map"),
        (15, "Its successor lands there", "migration/p1-1", "map"),
        (12, "shop/job starts", "pod/shop/job", "map"),
        (15, "What it came to", "", "plans"),
    ]
    text = " ".join(stop.text for stop in stops)
    for said in ("2 nodes; 1 pod running.", "It asks for 1 cpu.", "A slot on b is held for the successor of shop/web-old", "shop/web-new is on b, 7.0 s after the eviction", "1 move of 1 planned landed"):
        assert said in text


@pytest.mark.parametrize(("approved", "planned"), [(("p1-1",), 1), ((), 2)], ids=["in part", "all of it"])
def test_moves_that_nobody_was_to_make_were_not_planned(approved, planned):
    """Those that a person has declined, or that were only observed (they counted)."""
    log = migration(approved=approved)
    (looked,) = (event for event in decode(observed().records[2].body)[0].events if isinstance(event, e.Planned))
    log.decide("migration", c.Defragment(time_at(16), "interval", "p2"), replace(looked, plan="p2"))
    assert f"1 move of {planned} planned landed" in tour(index_of(log))[-1].text


@pytest.mark.parametrize(
    ("log", "titles"),
    [
        (placements(), ["The cluster"]),
        (migration(lands=False), ["The cluster", "A plan of 1 move", "What it came to"]),
        (observed(), ["The cluster", "A plan of 1 move", "What it came to"]),
        (proposed(), ["The cluster", "A plan of 1 move", "What it came to"]),
    ],
    ids=["no plan", "nothing landed", "only observed", "waits for a person"],
)
def test_what_has_not_happened_is_not_in_it(log, titles):
    stops = tour(index_of(log))
    assert [stop.title for stop in stops if not stop.title.endswith("waits")] == titles
    assert ("Nothing was moved" in stops[-1].text) == (stops[-1].title == "What it came to" and not index_of(log).tracks["moves"].keys)


def test_of_an_empty_log_there_is_none():
    assert tour(Index()) == []


@pytest.mark.parametrize("seed", range(4))
def test_what_it_says_is_so_at_that_instant(seed):
    """By the plain fold: who waits has no node, who starts has one, what is held is held, and what is opened is there."""
    log = World(seed).play(25)
    source, index = ListSource(log.records, log_id=LOG_ID), index_of(log)
    for stop in tour(index):
        there = view(state_at(source, seq=stop.at))
        kind, _, name = stop.show.partition("/")
        if kind == "pod":
            (row,) = [row for row in there.pods.values() if f"{row.namespace}/{row.name}" == name]
            assert bool(row.node) == stop.title.endswith("starts")
        elif kind == "migration":
            step = there.moves[name].step
            assert {"First": ("holding", "held"), "Then": ("evicting",), "Its": ("landed",)}.get(stop.title.split()[0], ("failed", "not_recreated")).count(step)
            assert not stop.title.startswith("First") or any(hold.migration == name and hold.node for hold in there.holds.values())
        elif kind == "plan":
            assert index.plans[name].seq == stop.at
        frame(index, stop.at)


def test_it_is_found_quickly_in_a_large_log():
    index = index_of(large(300))
    assert next(stop.title for stop in tour(index)) == "The cluster"


@needs_chromium
async def test_the_page_leads_from_stop_to_stop_and_back(opened):
    async with opened(migration(waits=True)) as it:
        await it.go("#tour=1")
        stops = await it.client.json("/api/v1/tour")
        for number, stop in enumerate(stops, 1):
            await it.until(f"document.querySelector('.tour h2')?.textContent.startsWith('{number} of {len(stops)}')")
            assert stop["title"] in await it.text(".tour h2")
            await it.at(stop["at"])
            await it.until(f"location.hash.includes('tour={number}')")
            if stop["show"]:
                assert await it.text(".panel h2") == stop["show"].partition("/")[2]
            await it.settled()
            if stop["view"] == "plans":
                assert "Won" in await it.text(".list"), "what was really won is in the list of all plans"
            await it.page.keyboard.press("Enter")  # the button that goes on has the focus
        await it.until("document.querySelector('.tour') === null && !location.hash.includes('tour')")
        await it.page.keyboard.press("t")
        await it.page.get_by_role("button", name="Next", exact=True).click()
        await it.page.get_by_role("button", name="Back", exact=True).click()
        await it.until("document.querySelector('.tour h2').textContent.startsWith('1 of ')")
        await it.page.keyboard.press("t")
        await it.until("document.querySelector('.tour') === null")
        await it.settled()


@needs_chromium
@pytest.mark.parametrize("said", ["0", "-1", "x", "99", "1e9"])
async def test_a_link_to_a_stop_that_there_is_not_leads_to_the_last_one_or_to_none(opened, said):
    async with opened(Handmade() if said == "x" else placements()) as it:
        await it.page.goto(f"{it.url}/#tour={said}")
        await it.page.wait_for_selector(".health b")
        if said == "99":
            await it.page.wait_for_selector(".tour h2")
            await it.settled()
        else:
            assert await it.page.locator(".tour").count() == 0


@needs_chromium
async def test_on_a_phone_the_tour_is_no_wider_than_the_screen(opened):
    async with opened(migration(waits=True), viewport={"width": 390, "height": 800}) as it:
        await it.go("#tour=2")
        await it.page.wait_for_selector(".tour h2")
        await it.settled()
        assert await it.page.evaluate("document.documentElement.scrollWidth") <= 390
        tops = await it.page.evaluate("[...document.querySelectorAll('nav button, .guide')].map((one) => one.getBoundingClientRect().top)")
        assert len(set(tops)) == 1, "its button stays where it was"


def test_replay_opens_a_file_alone_and_says_where(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command = [RESTOW, "replay", export(tmp_path / "log.jsonl", migration())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    try:
        assert "/#tour=1  shows" in process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_replay_says_what_is_wrong_with_a_file(restow, tmp_path):
    result = restow("replay", str(tmp_path / "none.jsonl"))
    assert (result.exit_code, "none.jsonl" in result.said) == (2, True)
