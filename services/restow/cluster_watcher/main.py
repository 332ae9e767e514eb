"""The process `restow-cluster-watcher`."""

from restow.cluster_watcher.service import service
from restow.runtime.service import run


def main() -> None:
    run(service())


if __name__ == "__main__":
    main()
