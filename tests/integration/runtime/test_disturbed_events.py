"""That a workload is left alone, since somebody else disturbs its moves, is said where people look, whoever is alive of it at that moment."""

from types import SimpleNamespace

from domain.build import replica_of, then
from domain.saga import OWNER
from domain.test_beside import world
from domain.test_disturbed import APART, fails, found

from restow.contracts import events as e
from restow.descheduler.effects import executors
from restow.descheduler.landings import Landings
from restow.domain.effects import TellBounced

DEPLOYMENT = replica_of("web", "Deployment")


class Recorder:
    def __init__(self):
        self.notices = []
        self.record = self.notices.append


async def told(*facts, lineage=OWNER.uid):
    """Whom the Event is about, after the workload was disturbed twice and these facts."""
    state = then(world(), *facts[:1]) if lineage == DEPLOYMENT.uid else world()
    fails(state, "x", "HoldStolen", 0)
    fails(state, "y", "HoldStolen", APART)
    assert [event.lineage for event in found(state, APART)] == [lineage]
    then(state, *facts)
    recorder = Recorder()
    context = SimpleNamespace(client=None, state=state, clock=None, recorder=recorder, metrics=SimpleNamespace(gauges=lambda read: None))
    await executors(context, Landings(context))[TellBounced].execute(TellBounced(lineage, ""), state)
    (notice,) = recorder.notices
    assert (notice.reason, notice.type) == ("Disturbed", "Warning")
    assert "HoldStolen" in notice.note
    about = notice.regarding
    return about.api_version, about.kind, about.namespace, about.name, about.uid


async def test_on_a_pod_that_lives():
    assert await told() == ("v1", "Pod", "default", "p", "p")


async def test_on_what_controls_its_controller_where_no_pod_does():
    above = e.WorkloadObserved(OWNER.uid, "ReplicaSet", "default", "rs", DEPLOYMENT)
    assert await told(above, e.PodGone("p"), lineage=DEPLOYMENT.uid) == (DEPLOYMENT.api_version, "Deployment", "default", "web", DEPLOYMENT.uid)


async def test_on_a_pod_that_terminates_where_nothing_else_of_it_is_known():
    assert await told(e.PodChanged("p", "a", "Running", deleting=1)) == ("v1", "Pod", "default", "p", "p")


async def test_on_the_pod_that_was_to_move_last_where_that_has_gone_too():
    """`kubectl get events` shows it all the same."""
    assert await told(e.PodGone("p")) == ("v1", "Pod", "default", "p", "p")
