"""Plugin RemoveDuplicates."""

from restow.domain.descheduling.plugins.remove_duplicates.args import Args as Args
from restow.domain.descheduling.plugins.remove_duplicates.plugin import run as run

NAME = "RemoveDuplicates"
POINTS = ("balance",)
