"""Pods that the cluster lives on are never evicted."""

from restow.domain.session.plugins.conformance import plugin as plugin
from restow.domain.session.plugins.conformance.args import Args as Args
