"""Which of the nodes is preferred, as kube-scheduler scores them."""

from restow.domain.session.plugins.nodeorder import plugin as plugin
from restow.domain.session.plugins.nodeorder.args import Args as Args
