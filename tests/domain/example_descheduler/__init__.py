"""Pods leave nodes that somebody has marked: the plugin of docs/architecture.md."""

from domain.example_descheduler.args import Args as Args
from domain.example_descheduler.plugin import run as run

NAME = "LeaveMarkedNodes"
POINTS = ("deschedule",)
