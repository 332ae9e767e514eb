"""The process `restow-garbage-collector`."""

from restow.garbage_collector.service import service
from restow.runtime.service import run


def main() -> None:
    run(service())


if __name__ == "__main__":
    main()
