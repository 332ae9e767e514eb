"""descheduler: fragmentation, plans, and the saga of each migration; creates and deletes Reservations, evicts."""

from restow.contracts import commands as c
from restow.descheduler.api import routes
from restow.descheduler.effects import executors
from restow.descheduler.follow import Followers
from restow.descheduler.metrics import DeschedulerMetrics
from restow.descheduler.people import Told
from restow.descheduler.policy import read
from restow.descheduler.progress import Progress
from restow.descheduler.sampler import Sampler
from restow.domain.config import MigrationConfig
from restow.domain.migration import decider
from restow.runtime.service import Context, Parts, Service, Shaping


def service() -> Service:
    return Service(
        name="descheduler",
        family="migration",
        decider=decider,
        assemble=assemble,
        read_config=read,
        default_config=MigrationConfig(),
        shape=lambda _: Shaping(heavy=(c.Defragment, c.Deschedule)),
    )


def assemble(context: Context) -> Parts:
    followers = Followers(context)
    progress = Progress(context, (DeschedulerMetrics(context), Told(context.recorder)))
    sampler = Sampler(context)
    return Parts(
        executors=executors(context),
        routes=routes(context, followers, sampler),
        tasks=[followers.run(), progress.run(), sampler.run()],
    )
