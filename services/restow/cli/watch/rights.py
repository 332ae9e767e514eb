"""What `restow watch` may be allowed at the Kubernetes API, and needs: the rights of the service that reads the cluster, and of whoever reads metrics."""

from __future__ import annotations

import yaml

from restow.kube.rights import KUBERNETES, Rule

NAME, NAMESPACE = "restow-watch", "default"
HEAD = f"""\
# What `restow watch` needs: reading, and nothing else. It is not needed where your own kubeconfig may read this.
#   restow watch --rbac | kubectl apply -f -
#   kubectl -n {NAMESPACE} create token {NAME} --duration 24h     the token for a kubeconfig of its own
"""


def rules() -> tuple[Rule, ...]:
    measured = tuple(rule for rule in KUBERNETES["descheduler"] if rule.group.endswith("metrics.k8s.io"))
    return (*KUBERNETES["cluster-watcher"], *measured)


def manifests() -> str:
    """A ServiceAccount with a ClusterRole, as YAML."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME},
        "rules": [{"apiGroups": [rule.group], "resources": rule.resources.split(), "verbs": rule.verbs.split()} for rule in rules()],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }
    return HEAD + yaml.safe_dump_all([account, role, binding], sort_keys=False)
