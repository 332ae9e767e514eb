"""What a request says of who sends it, where that ends and is to be had again: tokens of exec plugins, token files, identity providers.

`kubernetes_asyncio` reads them once, with a kubeconfig; its loader, which is kept here, can read them again (as client-go does, by itself).
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from restow import machine
from restow.contracts.redact import redacted

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

EARLY = 300.0
"""Seconds before its end in which a plugin's token is replaced; half of its life, where that is less."""
FILE_PERIOD = 60.0
"""Seconds after which a token is read again that does not say when it ends: of a file, or an identity provider."""
PAUSE = 10.0
"""Least seconds between two attempts to get another token."""
DEADLINE = 30.0
"""Seconds that a plugin has."""

HEADER = "authorization"


class CredentialsError(Exception):
    """There is no token that the API would take. Says why, without what is secret."""


class Credentials:
    """The credentials of one configuration. `loader`: of a kubeconfig; None inside a cluster, where the library reads its file again by itself."""

    def __init__(self, api: ApiClient, loader: KubeConfigLoader | None = None, deadline: float = DEADLINE) -> None:
        self._api, self._loader, self._deadline = api, loader, deadline
        self._ends = self._next = math.inf
        """When the token ends, and when another one is to be got, in seconds of the wall clock."""
        self._asked = _now()
        self._renewal: asyncio.Task[None] | None = None
        self._plan()

    async def authorize(self, headers: dict[str, str]) -> None:
        """Say who sends this. A token that still holds is sent while another one is being got. Raises CredentialsError."""
        if self._loader is not None and _now() >= self._next:
            renewal = self._renew(self._loader)
            if _now() >= self._ends:
                await asyncio.shield(renewal)
        try:
            await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        except Exception as error:
            raise _refusal(error) from error

    async def replaced(self, refused: str) -> bool:
        """The API does not take this header (401): whether there is another one to send, which is asked for now, if it was not a moment ago.
        Raises CredentialsError."""
        if self._loader is None or not refused:
            return False
        if self._token() == refused and (self._renewal is not None or _now() >= self._asked + PAUSE):
            await asyncio.shield(self._renew(self._loader))
        return self._token() != refused

    def _token(self) -> str:
        return str(self._api.configuration.api_key.get("BearerToken", ""))

    def _renew(self, loader: KubeConfigLoader) -> asyncio.Task[None]:
        """One at a time, for whoever waits for it."""
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._load(loader), name="credentials")
            self._renewal.add_done_callback(_looked_at)
        return self._renewal

    async def _load(self, loader: KubeConfigLoader) -> None:
        self._asked = _now()
        self._next = self._asked + PAUSE
        # By it the loader would go on with the token that it has.
        vars(loader).pop("exec_plugin_expiry", None)
        try:
            async with asyncio.timeout(self._deadline):
                await loader.load_and_set(self._api.configuration)
        except TimeoutError as error:
            raise CredentialsError(f"no token within {self._deadline:g} s") from error
        except Exception as error:
            # The library raises its own, and what json, yaml, the file system and the provider's client raise; all mean the same here.
            raise _refusal(error) from error
        finally:
            self._renewal = None
        self._plan()

    def _plan(self) -> None:
        """When what was just read is to be read again."""
        if self._loader is None or not self._token():
            return
        now, expiry = _now(), getattr(self._loader, "exec_plugin_expiry", None)
        if expiry is not None:
            self._ends = expiry.timestamp()
            left = self._ends - now
            self._next = now + max(left - EARLY, left / 2, PAUSE if left <= 0 else 0)
            if left <= 0:
                # By this machine's clock, which may be wrong: the API says whether it is.
                self._ends = math.inf
        elif self._plugin():
            self._ends = self._next = math.inf
        else:
            self._next = now + FILE_PERIOD

    def _plugin(self) -> bool:
        """Whether an exec plugin makes the tokens. One that does not say when its token ends is asked when the API refuses it."""
        user: Any = getattr(self._loader, "_user", None)
        return user is not None and "exec" in user


def _now() -> float:
    return machine.wall() / 1e9


def _refusal(error: Exception) -> CredentialsError:
    """One line of it: what follows may quote a file, which holds credentials."""
    return CredentialsError(redacted(str(error).partition("\n")[0]) or type(error).__name__)


def _looked_at(renewal: asyncio.Task[None]) -> None:
    """Nobody waits for one that was begun early; the next attempt comes by itself."""
    if not renewal.cancelled():
        renewal.exception()
