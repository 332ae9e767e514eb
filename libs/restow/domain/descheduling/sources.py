"""Where a policy has metrics from."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from restow.contracts.redact import redacted
from restow.domain.policy_args import Args, nested

KUBERNETES, PROMETHEUS = "KubernetesMetrics", "Prometheus"


class SecretReference(Args, frozen=True):
    namespace: str = ""
    name: str = ""


class AuthToken(Args, frozen=True):
    """A secret with the bearer token under the key `prometheusAuthToken`."""

    secret_reference: SecretReference | None = None


class Prometheus(Args, frozen=True):
    url: str = ""
    auth_token: AuthToken | None = None

    def check(self) -> str:
        if refusal := url_wrong("url", self.url, "https://prometheus.monitoring:9090"):
            return refusal
        if self.auth_token is None:
            return ""
        secret = self.auth_token.secret_reference
        if secret is None:
            return "authToken.secretReference: nothing; allowed: namespace and name of a secret"
        if not secret.namespace or not secret.name:
            said = f"{secret.namespace}/{secret.name}"
            return f"authToken.secretReference: {said!r}; allowed: both namespace and name"
        return ""

    @property
    def in_the_clear(self) -> bool:
        """Whether the token can be read on its way."""
        return self.auth_token is not None and self.url.lower().startswith("http:")


class MetricsProvider(Args, frozen=True):
    source: str = ""
    prometheus: Prometheus | None = None

    def check(self) -> str:
        if self.source not in (KUBERNETES, PROMETHEUS):
            return f"source: {self.source!r}; allowed: {KUBERNETES}, {PROMETHEUS}"
        if self.source == PROMETHEUS and self.prometheus is None:
            return "prometheus: nothing; allowed: an url, and an authToken where it asks for one"
        if self.prometheus is not None and (self.source == PROMETHEUS or self.prometheus != Prometheus()):
            return super().check()
        return ""


class MetricsCollector(Args, frozen=True):
    """Deprecated: the same as the provider KubernetesMetrics."""

    enabled: bool = False


def refusals(providers: Sequence[MetricsProvider], collector: MetricsCollector | None) -> list[str]:
    """Why these sources are refused."""
    reasons: list[str] = []
    sources: list[str] = []
    for i, provider in enumerate(providers):
        path = f"metricsProviders[{i}]"
        if refusal := provider.check():
            reasons.append(nested(path, refusal))
        elif provider.source in sources:
            reasons.append(f"{path}.source: {provider.source} is there twice; allowed: once")
        sources.append(provider.source)
    if sources and collector is not None and collector.enabled:
        reasons.append("metricsCollector.enabled: true beside metricsProviders; allowed: one of them (metricsCollector is deprecated)")
    return reasons


def url_wrong(path: str, url: str, example: str) -> str:
    """Why nothing can be asked there, or must not: the policy is logged, and whoever reads the log reads it."""
    allowed, shown = f"allowed: such as {example}", redacted(url)
    if not url:
        return f"{path}: nothing; {allowed}"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it is checked only when it is asked for
    except ValueError as error:
        return f"{path}: {shown!r} ({error}); {allowed}"
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return f"{path}: {shown!r}; {allowed}"
    if shown != url or parts.username:
        return f"{path}: {shown!r}: the policy is logged, and so a password in it would be; {allowed}, without a user, a password or a token"
    return ""
