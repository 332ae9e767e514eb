"""The process `restow-reservation-cache`."""

from restow.reservation_cache.service import service
from restow.runtime.service import run


def main() -> None:
    run(service())


if __name__ == "__main__":
    main()
