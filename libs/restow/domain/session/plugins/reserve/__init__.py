"""Room that is kept free in windows of time (seed 001)."""

from restow.domain.session.plugins.reserve import plugin as plugin
from restow.domain.session.plugins.reserve.args import Args as Args
