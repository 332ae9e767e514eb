"""The process `restow-scheduler-session`."""

from restow.runtime.service import run
from restow.scheduler_session.service import service


def main() -> None:
    run(service())


if __name__ == "__main__":
    main()
