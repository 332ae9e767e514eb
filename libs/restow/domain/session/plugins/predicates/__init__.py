"""Which nodes a pod may run on, as kube-scheduler decides it."""

from restow.domain.session.plugins.predicates import plugin as plugin
from restow.domain.session.plugins.predicates.args import Args as Args
