"""Jobs and tasks of higher priority first; lower ones may be preempted."""

from restow.domain.session.plugins.priority import plugin as plugin
from restow.domain.session.plugins.priority.args import Args as Args
