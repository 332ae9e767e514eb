"""How far a move beside another scheduler is, and why a session takes back what it has decided for one: each an id with its sentence."""


from docs.pages import ALL, PAGES, section
from domain.build import NOW, changed, configured, node, pod, run, then
from domain.saga import OWNER, advance, create, evicts, move, plan, terminate
from domain.test_beside import (
    STOCK,
    evicted,
    guard,
    holding,
    opened,
    placeholder,
    session_answers,
    stands,
    successor,
    world,
)
from msgspec.structs import replace

from restow.cli.views import COLUMNS, WIDE, migrations
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import beside, session
from restow.domain.session.verdict import explain
from restow.domain.verdicts import BESIDE, TAKEN_BACK, explained
from restow.replay.beside import beside_view
from restow.replay.holds import slot_views
from restow.replay.verdicts import verdict_lines
from restow.reservation_cache.effects import notice_of


def seen(state, id="x-1"):
    view = beside_view(state, state.migrations[id])
    assert view is not None
    assert view.scheduler == STOCK
    assert view.message == BESIDE.get(view.stage, "")
    return view


def test_a_move_says_how_far_it_is():
    state = holding(world())
    assert (seen(state).stage, seen(state).placeholder) == ("Placeholder", "")
    then(state, placeholder(state))
    view = seen(state)
    assert (view.stage, view.placeholder, view.node, view.runs) == ("Placeholder", "restow-holds/h", "b", False)
    (slot,) = slot_views(state, "hold-x-1")
    assert slot.placeholder == "restow-holds/h does not run yet"
    stands(state)
    view = seen(state)
    assert (view.stage, view.runs, view.controller, view.landing) == ("Opening", True, "", "")
    opened(state)
    view = seen(state)
    assert (view.stage, view.controller, view.landing) == ("Held", f"{OWNER.kind} {OWNER.name}", state.log)
    (slot,) = slot_views(state, "hold-x-1")
    assert slot.placeholder == "restow-holds/h runs"
    assert evicts(advance(state)) == ["x-1"]
    assert seen(state).stage == "Guarding"
    then(state, guard(state))
    assert (seen(state).stage, seen(state).guard) == ("Held", "restow-holds/g")
    terminate(state, "p")
    advance(state)
    assert seen(state).stage == "Awaited"
    then(state, pod("p2", "s", owner=OWNER, gated=True, landing=True))
    session_answers(state)
    assert (seen(state).stage, seen(state).successor) == ("Landing", "default/p2")
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER))
    assert seen(state).stage == "Ungated"
    then(state, changed("p2", node="b"))
    assert (seen(state).stage, seen(state).bound) == ("Bound", "b")
    then(state, changed("p2", node="b", phase="Running", ready=True))
    advance(state)
    assert (seen(state).stage, seen(state).message) == ("", "")


def test_a_second_one_on_the_same_node_waits_for_its_turn():
    state = evicted(world(node("c", cpu=4_000)))
    then(state, pod("q", node="c", owner=OWNER), node("b", cpu=8_000), plan("z", move("z-1", "q", "c")))
    advance(state)
    create(state, "z-1")
    session_answers(state)
    opened(state)
    then(state, placeholder(state, "z-1", "h2"), changed("h2", node="b", phase="Running", ready=True))
    session_answers(state)
    advance(state)
    terminate(state, "q")
    advance(state)
    successor(state, "p2")
    successor(state, "q2")
    assert (seen(state).stage, seen(state, "z-1").stage) == ("Landing", "OneAtATime")
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER), changed("p2", node="b"))
    assert (seen(state).stage, seen(state, "z-1").stage) == ("Bound", "Landing")


def test_what_get_migrations_shows_of_it():
    state = holding(world())
    stands(state)
    opened(state)
    (one,) = migrations(state)
    assert one["beside"]["stage"] == "Held"
    assert one["beside"]["placeholder"] == "restow-holds/h"
    titles, row, *_ = COLUMNS["migrations"]
    assert dict(zip(titles, row(one, state.time), strict=True))["BESIDE"] == "Held"
    titles, row, *_ = WIDE["migrations"]
    shown = dict(zip(titles, row(one, state.time), strict=True))
    assert (shown["SCHEDULER"], shown["PLACEHOLDER"], shown["SUCCESSOR"]) == (STOCK, "restow-holds/h", "-")
    assert shown["GATED"] == f"{OWNER.kind} {OWNER.name}"
    assert shown["MESSAGE"] == BESIDE["Held"]


def test_of_pods_of_ours_nothing_is_said():
    state = holding(world())
    then(state, configured("session", replace(state.session_config, scheduler_names=(STOCK,))))
    assert migrations(state)[0]["beside"] is None
    titles, row, *_ = COLUMNS["migrations"]
    assert dict(zip(titles, row(migrations(state)[0], state.time), strict=True))["BESIDE"] == "-"


def test_a_slot_that_is_taken_back_says_why_in_a_sentence():
    assert explained("HoldStolen") == f"HoldStolen: {TAKEN_BACK['HoldStolen']}"
    assert explained("PlaceholderRefused: 403 Forbidden") == "PlaceholderRefused: 403 Forbidden"
    assert explained("NodeLost") == "NodeLost"
    assert {beside.STOLEN, beside.REFUSED, beside.GONE} == set(TAKEN_BACK)
    state = holding(world())
    stands(state)
    then(state, e.PodGone("h"))
    session_answers(state)
    assert state.phases["hold-x-1"].message == f"nothing is held any more: HoldStolen: {TAKEN_BACK['HoldStolen']}"
    (slot,) = slot_views(state, "hold-x-1")
    assert (slot.phase, slot.reason, slot.placeholder) == ("Failed", "HoldStolen", "")


def test_a_placeholder_that_the_api_refuses_is_told_in_a_word_and_in_a_sentence():
    state = holding(world())
    run(state, session.decider, c.RefusePlaceholder(NOW, "hold-x-1", "hold-0", "404 NotFound no such namespace"))
    phase = state.phases["hold-x-1"]
    assert (phase.phase, phase.reason) == ("Failed", "PlaceholderRefused")
    assert phase.message == "nothing is held any more: PlaceholderRefused: 404 NotFound no such namespace"
    (failed,) = advance(state)
    assert (failed.reason, failed.message) == ("HoldFailed", "PlaceholderRefused: 404 NotFound no such namespace")


def test_a_placeholder_that_starts_is_nothing_to_worry_about():
    state = holding(world())
    reason, note, bad = notice_of(state.phases["hold-x-1"])
    assert (reason, note, bad) == ("Placeholder", BESIDE["Placeholder"], False)
    stands(state)
    then(state, e.PodGone("h"))
    session_answers(state)
    reason, _, bad = notice_of(state.phases["hold-x-1"])
    assert (reason, bad) == ("HoldStolen", True)


def test_the_pages_explain_each_of_these():
    assert {id for id in BESIDE if f"`{id}`" not in PAGES["beside"]} == set()
    rows = section("When pods wait")
    assert {id for id in TAKEN_BACK if f"`{id}`" not in rows} == set()
    assert "`Placeholder`" in ALL


def test_a_pod_that_waits_for_a_scheduler_that_beside_names_is_not_said_to_be_left_alone():
    state = world()
    waiting = pod("new")
    then(state, waiting)
    assert verdict_lines(state, explain(state, "new")) == [f"waits for {STOCK}, which places it (`kubectl describe pod` says what it lacks); Restow may move it once it runs"]
    then(state, replace(waiting, gated=True, gates=(beside.GATE,)))
    assert verdict_lines(state, explain(state, "new")) == [f"waits for its scheduling gates to be removed: {beside.GATE}"]
    then(state, configured("migration", replace(state.migration_config, beside=())))
    assert verdict_lines(state, explain(state, "new")) == [f"another scheduler's ({STOCK}): Restow never touches it"]
