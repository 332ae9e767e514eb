"""Which of the nodes is preferred, as kube-scheduler scores them."""

from restow.domain.session.plugins.nodeorder.args import Args as Args
