"""Plans by `value` from prices: a pattern is worth what the world says, devices are packed as well as prices allow, and what comes of it can be carried out."""

import sys
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape, then
from domain.planning import afterwards, carry_out, cluster
from msgspec.structs import replace

from restow.contracts.ids import PlanId
from restow.contracts.values import DeviceShare, LabelSelector, Spread
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing import filling, pricing
from restow.domain.defragmentation.optimizing import patterns as patterns_module
from restow.domain.defragmentation.optimizing.annealing import anneal
from restow.domain.defragmentation.optimizing.board import Board
from restow.domain.defragmentation.optimizing.filling import Filling
from restow.domain.defragmentation.optimizing.improve import take_up
from restow.domain.defragmentation.optimizing.packing import Packing
from restow.domain.defragmentation.optimizing.patterns import Patterns, Prices, Start
from restow.domain.defragmentation.optimizing.plan import FEWEST, PRICED, _Maker, least
from restow.domain.defragmentation.optimizing.pricing import priced
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.prices import OWN_PRICE

ARGS = DefragmentationArgs(planner="optimizing", objective="value", protectionThresholds={})


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch):
    """Of annealing: nodes here have few pods."""
    monkeypatch.setattr(pricing, "STEPS", 20)
    for course in ("ALL", "OF_SAMPLE"):
        monkeypatch.setattr(pricing, course, getattr(pricing, course)._replace(last=60))


def _task(state, moves: int = 2_000) -> Task:
    return Task(state, ARGS, NOW, PlanId("p"), moves)


def _search(world, task: Task) -> Search:
    return Search(world, Limits(task.max_moves, least(task.args), 1_000, whole=False))


def _priced(search: Search):
    return priced(search, Board(search))


@pytest.fixture
def all_counts(monkeypatch):
    """Small clusters promise little."""
    monkeypatch.setattr(pricing, "NOTHING", 1 << 60)


def _prices(patterns: Patterns, seed: int) -> Prices:
    """Some, of about what a device is worth."""
    chance, board = np.random.default_rng(seed), patterns.board
    most = 30_000_000_000 * np.maximum(board.count[patterns.kind] * board.milli[patterns.kind], 100) // 1_000
    return Prices(chance.integers(0, most), int(chance.integers(0, 2_000_000_000)))


@pytest.mark.parametrize("sparing", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_pattern_is_worth_what_the_world_says_when_these_have_left_and_those_have_come(seed, sparing):
    task, told = _task(cluster(seed, "value")), 0
    with opened(task, "value", Rows(task)) as world:
        patterns = Patterns(Board(_search(world, task)), sparing=sparing)
        packing = Packing(patterns, world.value.of)
        for nth in range(2):
            prices = _prices(patterns, seed * 10 + nth)
            if sparing:
                # Fewer leave, and fewer nodes gain by one who comes: with cheap moves and dear pods, some do.
                prices = Prices(prices.pods // (1 + 3 * nth), prices.move // 4)
            patterns.grow(prices, bool(nth))
            patterns.take_in(packing.starts(prices))
            patterns.take_in([one for one, _ in Filling(patterns).starts(prices, [Start(node, (), ()) for node in range(len(patterns.rows))], 30, 4_000_000_000)])
        board = patterns.board
        for one in patterns.table().patterns:
            row, mark = int(patterns.rows[one.start.node]), world.mark()
            before = int(world.worth[row])
            others = {k: [i for i in np.flatnonzero(patterns.of == k).tolist() if int(board.home[i]) != row] for k in set(one.start.came)}
            if any(one.start.came.count(k) > len(pods) for k, pods in others.items()):
                continue  # so many of this class are not elsewhere
            for i in one.start.gone:
                world.lift(board.uids[i])
            for k in one.start.came:
                uid = board.uids[others[k].pop()]
                world.lift(uid)
                spot = world.placement.fits_at(uid, row)
                assert spot is not None, "whoever comes has a place"
                world.land(uid, spot)
            cost = sum(int(board.cost[i]) for i in one.start.gone)
            assert (int(world.worth[row]) - before) * THOUSANDTHS - cost == one.value
            told += bool(one.start.came)
            world.undo(mark)
    assert told, "somebody comes in some pattern"


@pytest.mark.parametrize("seed", range(6))
def test_annealing_finds_what_a_node_holds_best_at_these_prices(seed):
    """Against all sets of who leaves and who comes, where each node has one device."""
    task = _task(_one_device(seed))
    with opened(task, "value", Rows(task)) as world:
        patterns = Patterns(Board(_search(world, task)))
        prices, filling = _prices(patterns, seed), Filling(patterns)
        board, nothing = patterns.board, [Start(node, (), ()) for node in range(len(patterns.rows))]
        found = filling.starts(prices, nothing * 12, 1_000, 8_000_000_000)

        def scores(starts: list[Start]) -> list[int]:
            """Of those for all of whom there is a place."""
            landed, there, bills = patterns._landed(starts)
            gained = patterns._weighed(starts, there) - board.worth[patterns.rows[[one.node for one in starts]]] * THOUSANDTHS - bills
            paid = [sum(int(prices.pods[k]) for k in one.came) - sum(int(prices.pods[patterns.of[i]]) + prices.move for i in one.gone) for one in starts]
            return [more + by for more, by, one, other in zip(gained.tolist(), paid, starts, landed, strict=True) if one == other]

        assert scores([one for one, _ in found]) == [reached for _, reached in found], "what is found is worth what annealing says"
        for node, home in enumerate(patterns.at_home):
            left = [gone for n in range(len(home) + 1) for gone in combinations(home, n)]
            every = [Start(node, gone, came) for gone in left for m in range(4 + 1) for came in combinations_with_replacement(range(patterns.classes), m)]
            assert max(reached for one, reached in found if one.node == node) == max(scores(every))


@pytest.mark.parametrize("seed", range(4))
def test_annealing_goes_on_from_where_it_begins_and_is_never_worse(seed):
    task = _task(cluster(seed, "value"))
    with opened(task, "value", Rows(task)) as world:
        patterns = Patterns(Board(_search(world, task)))
        prices, filling = _prices(patterns, seed), Filling(patterns)
        patterns.grow(prices, by_gain=True)
        table = patterns.table()
        best = table.best(table.scores(prices))
        begin = [table.patterns[j].start for j in best.tolist()]
        found, least = filling.starts(prices, begin, 50, 4_000_000_000), table.scores(prices)[best].tolist()
        assert [one.node for one, _ in found] == [one.node for one in begin]
        assert all(reached >= before for (_, reached), before in zip(found, least, strict=True))
        assert [reached for _, reached in filling.starts(prices, begin, 0, 4_000_000_000)] == least, "nothing has changed yet"


@pytest.mark.parametrize("seed", range(6))
def test_whoever_is_not_thought_of_in_a_large_cluster_gains_less_than_a_move_costs(seed):
    task = _task(cluster(seed, "value"))
    with opened(task, "value", Rows(task)) as world:
        board = Board(_search(world, task))
        every, fewer = Patterns(board), Patterns(board, sparing=True)
        prices = _prices(every, seed)
        kept = {(one.node, one.gone) for one in fewer._leaving(prices)}
        starts = [one for one in every._leaving(prices) if (one.node, one.gone) not in kept]
        assert starts or len(kept) == len(every._leaving(prices))
        for one in starts:
            row, mark = int(every.rows[one.node]), world.mark()
            before = int(world.worth[row])
            for i in one.gone:
                world.lift(board.uids[i])
            paid = sum(int(board.cost[i] + prices.pods[every.of[i]]) + prices.move for i in one.gone)
            assert (int(world.worth[row]) - before) * THOUSANDTHS - paid < -prices.move
            world.undo(mark)


@pytest.mark.parametrize("sparing", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_patterns_are_the_same_however_many_are_looked_at_together(seed, sparing, monkeypatch):
    task, found = _task(cluster(seed, "value")), []
    for together in (patterns_module.TOGETHER, 7):
        monkeypatch.setattr(patterns_module, "TOGETHER", together)
        with opened(task, "value", Rows(task)) as world:
            patterns = Patterns(Board(_search(world, task)), sparing=sparing)
            prices = _prices(patterns, seed)
            for by_gain in (False, True):
                assert patterns.grow(Prices(prices.pods, prices.move // 4), by_gain)
            found.append((patterns.table().patterns, patterns.weighed))
    assert found[0] == found[1]


def test_nothing_is_looked_for_where_the_first_growth_alone_shows_that_steps_do_not_suffice(monkeypatch):
    """As where nearly each pod asks for something else: hardly anybody can take the place of another one, and each may come to each node."""
    monkeypatch.setattr(patterns_module, "TOGETHER", 7)
    monkeypatch.setattr(pricing, "EVALUATED", 1)
    task, made = _task(cluster(0, "value")), list[Patterns]()
    monkeypatch.setattr(pricing, "Patterns", lambda *args, **more: made.append(Patterns(*args, **more)) or made[-1])

    def looked_for(steps: int):
        with opened(task, "value", Rows(task)) as world:
            return _priced(Search(world, Limits(2_000, least(ARGS), steps, whole=False)))

    assert looked_for(100_000) is not None
    assert looked_for(2_000) is None
    assert made[1].weighed <= 2_000, "it ends as soon as that is seen"


def test_a_sample_is_as_many_nodes_as_are_asked_for_large_ones_and_small_ones_and_the_same_whatever_row_they_have(monkeypatch):
    monkeypatch.setattr(pricing, "SAMPLE", 10)
    found = []
    for backwards in (False, True):
        nodes = [node(f"n{i:02d}", cpu=64_000, gpus=4 if i % 3 else 8) for i in range(40)]
        state = given(*(reversed(nodes) if backwards else nodes))
        then(state, shape("s", cpu=100, memory=0, gpu=(1, 500)), *(pod(f"p{i}", "s", f"n{i:02d}", owner=replica_of("rs"), devices=(DeviceShare(0, 500),)) for i in range(0, 40, 2)))
        task = _task(state)
        with opened(task, "value", Rows(task)) as world:
            found.append([world.name(row) for row in pricing.sampled(Board(_search(world, task))).tolist()])
    assert found[0] == found[1]
    assert len(set(found[0])) == 10
    assert {int(name[1:]) % 3 == 0 for name in found[0]} == {True, False}
    assert {int(name[1:]) % 2 == 0 for name in found[0]} == {True, False}


@pytest.mark.parametrize("seed", range(20))
def test_one_device_is_packed_as_well_as_prices_allow(seed):
    """Against all sets of who stays and who comes, where each node has one device."""
    state = _one_device(seed)
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        patterns = Patterns(Board(_search(world, task)))
        packing, prices = Packing(patterns, world.value.of), _prices(patterns, seed)
        board, starts = patterns.board, packing.starts(prices)
        size, left = packing._size, packing._left
        shared = [k for k in range(patterns.classes) if size[k] > 0]
        stay = {i: int(board.cost[i] + prices.move + prices.pods[patterns.of[i]]) for i in range(len(board.uids))}
        for node, home in enumerate(patterns.at_home):
            group, units, mine = int(packing._group[node]), packing._units, [i for i in home if size[patterns.of[i]] > 0]
            taken = {i: int(size[patterns.of[i]]) for i in mine}
            able = [k for k in shared if packing._admits[group, k]]
            many = units // min(int(size[k]) for k in shared)
            best = max(
                sum(stay[i] for i in staying) + sum(int(prices.pods[k]) for k in coming) + int(left[group, units - used])
                for n in range(len(mine) + 1)
                for staying in combinations(mine, n)
                for m in range(many + 1)
                for coming in combinations_with_replacement(able, m)
                if (used := sum(taken[i] for i in staying) + sum(int(size[k]) for k in coming)) <= units
            )
            found = []
            for one in starts:
                if one.node == node:
                    staying, coming = [i for i in mine if i not in one.gone], [k for k in one.came if size[k] > 0]
                    used = sum(taken[i] for i in staying) + sum(int(size[k]) for k in coming)
                    assert used <= units
                    found.append(sum(stay[i] for i in staying) + sum(int(prices.pods[k]) for k in coming) + int(left[group, units - used]))
            assert max(found) == best


def _one_device(seed: int):
    """Nodes of one GPU, with shares of a quarter and more."""
    chance = np.random.default_rng(seed)
    state = given(*(node(f"n{i}", cpu=64_000, gpus=1) for i in range(4)))
    sizes = [250, 300, 400, 500, 600]
    for milli in sizes:
        then(state, shape(f"s{milli}", cpu=100, memory=0, gpu=(1, milli)))
    for i in range(4):
        used = 0
        for milli in chance.permutation(sizes).tolist():
            if used + milli <= 1_000 and chance.random() < 0.7:
                used += milli
                then(state, pod(f"p{i}-{milli}", f"s{milli}", f"n{i}", owner=replica_of("rs"), devices=(DeviceShare(0, milli),)))
    return state


@pytest.mark.usefixtures("all_counts")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("moves", [0, 3, 2_000])
@pytest.mark.parametrize("seed", range(4))
def test_there_is_place_for_all_who_move_no_more_do_than_may_and_they_are_the_same_each_time(seed, moves, many, monkeypatch):
    state, found = cluster(seed, "value"), []
    if many:
        _as_many(monkeypatch, nodes=1, sample=2)
    task = _task(state, moves)
    for _ in range(2):
        with opened(task, "value", Rows(task)) as world:
            start = _priced(_search(world, task))
            assert not world.away, "all are at home again"
            found.append(start)
            if start is None:
                continue
            ends, steps = start.ends, start.steps
            assert min(moves, 1) <= len(ends) <= moves
            assert steps >= 0
            take_up(world, ends)
            for name, row in state.table.rows.items():
                free, shares = world.free(row)
                assert min(free) >= 0
                assert all(share >= 0 for share in shares[: state.nodes[name].devices])
    assert found[0] == found[1]


def _as_many(monkeypatch, nodes: int, sample: int) -> None:
    """More nodes than this are planned as many are."""
    monkeypatch.setattr(pricing, "MANY", nodes)
    monkeypatch.setattr(pricing, "SAMPLE", sample)
    monkeypatch.setattr(sys.modules[_Maker.__module__], "FEW", nodes)


@pytest.mark.usefixtures("all_counts")
def test_of_many_nodes_only_those_are_annealed_that_gain_something_and_in_parts(monkeypatch):
    _as_many(monkeypatch, 2, 2)
    monkeypatch.setattr(filling, "CELLS", 1)
    begun, fill, starts, checked = list[set[int]](), pricing._fill, Filling.starts, 0

    def started(self, prices, begin, *rest):
        begun.append({one.node for one in begin})
        return starts(self, prices, begin, *rest)

    def filled(patterns, filling, prices, device, course, nth):
        nonlocal checked
        table = patterns.table()
        scores = table.scores(prices)
        gaining = {table.patterns[j].start.node for j in table.best(scores).tolist() if scores[j] > 0}
        fill(patterns, filling, prices, device, course, nth)
        assert not course.gaining or begun[-1] == gaining
        checked += course.gaining and 0 < len(gaining) < len(patterns.rows)

    monkeypatch.setattr(Filling, "starts", started)
    monkeypatch.setattr(pricing, "_fill", filled)
    for seed in (0, 3):
        task = _task(cluster(seed, "devices"))
        with opened(task, "value", Rows(task)) as world:
            _priced(_search(world, task))
    assert checked, "on the second one something is gained"


def test_without_devices_nothing_is_packed():
    task = _task(cluster(1, "capacity"))
    with opened(task, "value", Rows(task)) as world:
        assert _priced(_search(world, task)) is None


@pytest.mark.usefixtures("all_counts")
@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_what_a_device_is_worth_is_known_although_most_nodes_have_none(seed):
    def many(others: int) -> int:
        state = _one_device(seed)
        then(state, *(node(f"z{i}", cpu=64_000) for i in range(others)))
        task = _task(state)
        with opened(task, "value", Rows(task)) as world:
            start = _priced(_search(world, task))
        return len(start.ends) if start is not None else 0

    assert many(9) == many(0) > 0


@pytest.mark.usefixtures("all_counts")
def test_a_node_that_has_a_price_and_nearly_nothing_else_takes_nothing_from_plans():
    """Chance differs with it, so others are found, of which some are worth a little less and some a little more."""
    found = [0, 0]
    for seed in range(4):
        state = _one_device(seed)
        for nth, some in enumerate(([], [node("z", cpu=0, memory=0, labels={OWN_PRICE: "10000"})])):
            task = _task(then(state, *some))
            with opened(task, "value", Rows(task)) as world:
                search = _search(world, task)
                before, start = search.net(), _priced(search)
                if start is not None:
                    take_up(world, start[0])
                    found[nth] += search.net() - before
    assert found[1] * 10 > found[0] * 9 > 0


def test_pods_of_which_each_costs_more_than_all_nodes_are_worth_stay():
    state = _one_device(1)
    then(state, shape("t", cpu=100, memory=0, gpu=(1, 1), priority=1_000_000_000), *(node(f"z{i}", cpu=64_000, gpus=1) for i in range(2)))
    for i in range(64):
        then(state, pod(f"z{i}", "t", f"z{i % 2}", owner=replica_of("rs"), devices=(DeviceShare(0, 1),)))
    task = _task(state)._replace(args=replace(ARGS, minimumGain=1_000_000, costs={"priority": 1_000_000}))
    with opened(task, "value", Rows(task)) as world:
        search = _search(world, task)
        patterns = Patterns(Board(search))
        prices = _prices(patterns, 1)
        patterns.grow(prices, by_gain=False)
        patterns.take_in(Packing(patterns, world.value.of).starts(prices))
        costs = [world.cost(uid) * search.limits.least for uid in patterns.board.uids]
        assert sum(costs) > 1 << 63
        for one in patterns.table().patterns:
            assert (one.value < 0) or not any(costs[i] > 1 << 52 for i in one.start.gone)


@pytest.mark.parametrize("rule", [{}, {"spread": (Spread(1, "zone", "ScheduleAnyway", LabelSelector({"app": "web"})),)}])
def test_plans_begin_with_prices_alone_only_where_prices_are_about_all_who_may_move(rule, monkeypatch):
    maker = sys.modules[_Maker.__module__]
    state, began = _one_device(1), []
    then(state, *(node(f"z{i}", gpus=1, labels={"zone": str(i % 2)}) for i in range(2)), shape("web", cpu=100, memory=0, gpu=(1, 100), **rule))
    then(state, pod("web", "web", "z0", owner=replica_of("web"), labels={"app": "web"}, devices=(DeviceShare(0, 100),)))
    started = _Maker._started

    def noted(self, *args):
        began.append(args)
        return started(self, *args)

    monkeypatch.setattr(maker, "PRICED", 1)
    monkeypatch.setattr(_Maker, "_started", noted)
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        assert _priced(_search(world, task)) is not None
    _Maker(task).searched(1_000, {})
    assert bool(began) == bool(rule)


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_nobody_moves_where_all_that_patterns_promise_is_less_than_a_device(seed, monkeypatch):
    task = _task(_one_device(seed))
    rounds, found = [], []
    table = Patterns.table
    monkeypatch.setattr(Patterns, "table", lambda self: rounds.append(self) or table(self))
    for counts in (1, 1 << 60):
        monkeypatch.setattr(pricing, "NOTHING", counts)
        rounds.clear()
        with opened(task, "value", Rows(task)) as world:
            search = _search(world, task)
            ends = _priced(search).ends
            take_up(world, ends)
            found.append((len(ends), len(rounds), search.net()))
    (nobody, short, before), (some, long, after) = found
    device = 24_000 * THOUSANDTHS
    assert 0 == nobody < some
    assert short < long, "no more patterns are looked for"
    assert before < after < before + 2 * device


def test_a_plan_that_begins_with_prices_alone_is_searched_for_once_more_from_there_and_nobody_is_pushed(monkeypatch):
    state, ran = cluster(0, "value", FEWEST + 10), []
    run = Search.run

    def noted(self, rows, **deep):
        ran.append((self.world.away.keys(), deep))
        run(self, rows, **deep)

    monkeypatch.setattr(Search, "run", noted)
    maker = _Maker(_task(state))
    found = maker.searched(1_000, {})[0]
    assert found.world.away
    assert [deep for _, deep in ran] == [{"depth": 0}]


@pytest.mark.parametrize("moves", [25, 2_000])
@pytest.mark.parametrize("seed", range(2))
def test_on_more_than_a_hundred_nodes_plans_begin_with_it_can_be_carried_out_and_the_next_one_is_empty(seed, moves, monkeypatch):
    state, began = cluster(seed, "value", FEWEST + 10), []

    def counted(search: Search, board: Board):
        began.append(priced(search, board))
        return began[-1]

    monkeypatch.setattr(sys.modules[_Maker.__module__], "priced", counted)
    plan = defragmentation.plan(state, ARGS, NOW, PlanId("p"), moves)
    assert any(start is not None for start in began) or moves < 100
    assert plan == defragmentation.plan(state, ARGS, NOW, PlanId("p"), moves)
    assert 0 < len(plan.moves) <= moves
    after = afterwards(state, carry_out(state, plan, seed))
    if moves > len(plan.moves):
        assert not defragmentation.plan(after, ARGS, NOW, PlanId("q"), moves).moves


@pytest.mark.parametrize("seed", range(2))
def test_on_more_than_twenty_nodes_plans_begin_with_prices_and_are_worth_as_much(seed, monkeypatch):
    task, began = _task(cluster(seed, "value", PRICED + 4 + 8 * seed)), []
    maker = sys.modules[_Maker.__module__]
    monkeypatch.setattr(maker, "priced", lambda search, board: began.append(priced(search, board)) or began[-1])
    with opened(task, "value", Rows(task)) as world:
        search = Search(world, _Maker(task).limits)
        start = _priced(search)
        assert start is not None
        take_up(world, start[0])
        least = search.net()
    search = _Maker(task).searched(task.args.searchSteps, {})[0]
    assert began[0] is not None
    assert began[0][0] == start[0]
    assert search.net() >= least
    monkeypatch.setattr(maker, "PRICED", FEWEST)
    began.clear()
    without = _Maker(task).searched(task.args.searchSteps, {})[0]
    assert not began
    assert search.net() * 100 >= without.net() * 97


@pytest.mark.parametrize("seed", range(4))
def test_of_few_nodes_that_is_taken_which_is_worth_most_when_they_have_landed(seed, monkeypatch):
    task, told = _task(cluster(seed, "value", 24)), []
    landed = pricing.in_place
    monkeypatch.setattr(pricing, "in_place", lambda *args: told.append(landed(*args)) or told[-1])
    with opened(task, "value", Rows(task)) as world:
        search = _search(world, task)
        start = _priced(search)
        assert len(told) == len(pricing.FEW_PARTS)
        assert start is not None
        take_up(world, start[0])
        assert search.net() == max(one.net for one in told if one is not None and one.ends)


@pytest.mark.parametrize("moves", [12, 2_000])
@pytest.mark.parametrize("seed", range(2))
def test_prices_from_a_sample_lead_to_plans_that_can_be_carried_out(seed, moves, monkeypatch):
    _as_many(monkeypatch, nodes=FEWEST, sample=30)
    state, began, ran, annealed = cluster(seed, "value", FEWEST + 10), [], [], []
    run = Search.run

    def counted(search: Search, board: Board):
        began.append(priced(search, board))
        return began[-1]

    def noted(self, rows, **deep):
        ran.extend(rows)
        run(self, rows, **deep)

    monkeypatch.setattr(sys.modules[_Maker.__module__], "priced", counted)
    monkeypatch.setattr(Search, "run", noted)
    monkeypatch.setattr(sys.modules[_Maker.__module__], "anneal", lambda *args: annealed.append(anneal(*args)))
    plan = defragmentation.plan(state, ARGS, NOW, PlanId("p"), moves)
    assert not ran, "prices came near to what they promise, so nothing is searched for, however many moves are left"
    assert bool(annealed) == (len(plan.moves) < moves), "annealed only where moves are left"
    assert [start.near for start in began] == [True], "nor is it carried on"
    assert 0 < len(plan.moves) <= moves
    assert not carry_out(state, plan, seed).left, "all of it is carried out"
    assert plan == defragmentation.plan(state, ARGS, NOW, PlanId("p"), moves)


def test_on_many_nodes_the_search_sees_to_the_nodes_of_those_alone_of_whom_prices_do_not_think(monkeypatch):
    _as_many(monkeypatch, nodes=FEWEST, sample=30)
    state, ran = cluster(0, "value", FEWEST + 10), []
    rule = {"spread": (Spread(1, "zone", "ScheduleAnyway", LabelSelector({"app": "web"})),)}
    then(state, *(node(f"z{i}", gpus=1, labels={"zone": str(i % 2)}) for i in range(2)), shape("web", cpu=100, memory=0, gpu=(1, 100), **rule))
    then(state, pod("web", "web", "z0", owner=replica_of("web"), labels={"app": "web"}, devices=(DeviceShare(0, 100),)))
    run = Search.run
    monkeypatch.setattr(Search, "run", lambda self, rows, **deep: ran.append(list(rows)) or run(self, rows, **deep))
    search = _Maker(_task(state)).searched(1_000, {})[0]
    assert search.world.away
    assert ran == [[state.table.rows["z0"]]]
