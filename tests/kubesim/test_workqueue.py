"""KS-200..205: the queue, the turns and the timers."""

from __future__ import annotations

from kubesim.simworld import World, pod_spec, workload

from restow.kubesim.resources import PODS, REPLICASETS
from restow.kubesim.runtime import Runtime
from restow.kubesim.store import Store
from restow.kubesim.timers import Timers, Timings, VirtualLoop
from restow.kubesim.workqueue import WorkQueue


def _queue() -> tuple[VirtualLoop, WorkQueue]:
    loop = VirtualLoop()
    timers: Timers

    def fire() -> None:
        while (timer := timers.pop()) is not None:
            timer.callback(*timer.args)
        timers.arm()

    timers = Timers(loop, fire)
    return loop, WorkQueue(timers, lambda: None, retry_first=0.1, retry_last=1.0)


def _drain(queue: WorkQueue) -> list:
    found = []
    while (key := queue.pop()) is not None:
        found.append(key)
    return found


def test_a_key_that_is_added_twice_is_worked_on_once_in_order_of_its_first_addition():
    """KS-200"""
    _, queue = _queue()
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert _drain(queue) == ["a", "b", "c"]


def test_of_several_delays_of_a_key_the_earliest_counts():
    """KS-201"""
    loop, queue = _queue()
    for delay in (5.0, 1.0, 3.0):
        queue.add_after("a", delay)
    loop.advance(0.9)
    assert _drain(queue) == []
    loop.advance(0.2)
    assert _drain(queue) == ["a"]
    loop.advance(10)
    assert _drain(queue) == []


def test_an_addition_settles_a_pending_delay():
    """KS-201"""
    loop, queue = _queue()
    queue.add_after("a", 1.0)
    queue.add("a")
    assert _drain(queue) == ["a"]
    loop.advance(2)
    assert _drain(queue) == []


def test_retries_back_off_up_to_a_bound_until_the_key_succeeds():
    """KS-202"""
    _, queue = _queue()
    assert [round(queue.retry("a"), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    queue.forget("a")
    assert queue.retry("a") == 0.1


class _Broken:
    name = "broken"
    watches = (REPLICASETS,)

    def __init__(self, runtime: Runtime):
        self.queue = runtime.new_queue()
        self.attempts = 0

    def observe(self, change) -> None:
        raise RuntimeError("cannot observe")

    def reconcile(self, key):
        self.attempts += 1
        if self.attempts < 4:
            raise RuntimeError("cannot reconcile")
        return None


def test_a_controller_that_raises_is_logged_and_tried_again_with_backoff(caplog):
    """KS-202"""
    loop = VirtualLoop()
    runtime = Runtime(Store(), loop, Timings(retry_first=0.1), loop.time)
    broken = _Broken(runtime)
    runtime.add(broken)
    broken.queue.add("k")
    loop.advance(0.05)
    assert broken.attempts == 1
    loop.advance(10)
    assert (broken.attempts, runtime.failures) == (4, 3)
    assert "broken k failed" in caplog.text


def test_a_controller_that_cannot_take_a_change_does_not_keep_it_from_the_others(caplog):
    """KS-202"""
    world = World()
    broken = _Broken(world.running.runtime)
    world.running.runtime.add(broken)
    world.create(REPLICASETS, "web", workload(replicas=1))
    assert len(world.pods()) == 1
    assert "could not take" in caplog.text


def test_a_turn_ends_when_its_slice_is_over_and_the_rest_follows_in_the_next():
    """KS-203"""
    loop, ticks = VirtualLoop(), iter(range(1_000_000))
    runtime = Runtime(Store(), loop, Timings(slice=3), lambda: next(ticks))
    done: list = []

    class Slow:
        name = "slow"
        watches = ()
        queue = runtime.new_queue()

        def reconcile(self, key):
            done.append((key, loop.turns))

    loop.turns = 0
    runtime.add(Slow())
    call_soon = loop.call_soon

    def counted(callback, *args):
        loop.turns += 1
        return call_soon(callback, *args)

    loop.call_soon = counted
    for key in range(10):
        Slow.queue.add(key)
    loop.advance()
    assert [key for key, _ in done] == list(range(10))
    assert max(turn for _, turn in done) > 2


def test_controllers_take_up_what_was_there_before_they_started():
    """KS-204"""
    world = World(controllers=False)
    world.create(REPLICASETS, "web", workload(replicas=2))
    world.start()
    world.run()
    assert len(world.pods()) == 2


def test_nothing_is_done_after_close():
    """KS-205"""
    world = World()
    world.running.close()
    world.create(REPLICASETS, "web", workload(replicas=2))
    world.run(10)
    assert world.store.count(PODS) == 0


def test_the_kubelets_speed_divides_its_times_only():
    """KS-205"""
    fast = Timings().faster(2)
    assert (fast.start, fast.ready, fast.stop, fast.heartbeat) == (0.010, 0.005, 0.010, 10.0)
    assert pod_spec()["containers"]
