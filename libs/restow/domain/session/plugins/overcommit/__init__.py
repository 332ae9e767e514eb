"""How much may be admitted to the queues beyond what is idle."""

from restow.domain.session.plugins.overcommit import plugin as plugin
from restow.domain.session.plugins.overcommit.args import Args as Args
