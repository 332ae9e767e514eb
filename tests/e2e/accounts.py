"""Each service with the rights of its own ServiceAccount and no more, as the chart gives them with autoscalers, on an API server that asks (RBAC)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from kubesim.conformance.harness import Target, plain, write_kubeconfig

from restow.contracts.ids import SERVICES

FILES = Path(__file__).parents[2] / "deploy" / "chart" / "files"
NAMESPACE = "restow-system"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RIGHTS}/clusterroles",
    "ClusterRoleBinding": f"{RIGHTS}/clusterrolebindings",
    "Role": f"{RIGHTS}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{RIGHTS}/namespaces/{NAMESPACE}/rolebindings",
}


def accounts(target: Target, folder: Path, admin: Path) -> Path:
    """A folder for `restow up --kube`: a kubeconfig for each service, with a token of its account, and the administrator's."""
    folder.mkdir()
    shutil.copy(admin, folder / "admin.yaml")
    plain(target, "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for part in ("", "autoscalers"):
        for body in yaml.safe_load_all((FILES / part / "rights.yaml").read_text()):
            plain(target, "POST", PATHS[body["kind"]], body)
    for service in SERVICES:
        name = service.replace("_", "-")
        asked: dict[str, Any] = {"spec": {"expirationSeconds": 86400}}
        token = plain(target, "POST", f"{PATHS['ServiceAccount']}/restow-{name}/token", asked)["status"]["token"]
        write_kubeconfig(replace(target, headers={"Authorization": f"Bearer {token}"}), folder / f"{service}.yaml")
    return folder
