"""What the chart makes of its values, by Helm; and `deploy/restow.yaml`, which is the chart's default for whom has kubectl and no Helm.

    python deploy/render.py            writes deploy/restow.yaml (`make manifests`)
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "chart"
WHOLE = DEPLOY / "restow.yaml"
NAMESPACE = "restow-system"
SECRETS_BY_HAND = ("nats.existingSecret=restow-nats", "descheduler.api.existingSecret=restow-descheduler-api")
"""A file cannot make a password."""
HEAD = f"""# Written by `make manifests` from deploy/chart; change it there.
# Restow on a cluster, for kubectl. docs/install.md says how to make the Secret `restow-nats`, which is not in here.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    app.kubernetes.io/part-of: restow
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/enforce-version: latest
"""
HELMS_OWN = re.compile(r"^ +(?:app\.kubernetes\.io/(?:managed-by: Helm|instance: .*)|helm\.sh/chart: .*)\n", re.MULTILINE)
"""Labels that are true of Helm's objects only."""
EMPTY_NOTES = re.compile(r"^ +annotations:\n +helm\.sh/resource-policy: keep\n", re.MULTILINE)


def helm() -> str | None:
    """The program: on the PATH, or built by tests/kubernetes/build.sh."""
    folders = [os.environ.get("PATH", ""), os.environ.get("KUBEBUILDER_ASSETS", ""), str(DEPLOY.parent / ".kubernetes")]
    return shutil.which("helm", path=os.pathsep.join(folder for folder in folders if folder))


def template(*arguments: str, namespace: str = NAMESPACE) -> str:
    """`helm template` of the chart. Raises LookupError without Helm, ValueError where it refuses."""
    program = helm()
    if program is None:
        raise LookupError("Helm is not installed: put `helm` on the PATH, or HELM=1 ONLY=1 tests/kubernetes/build.sh .kubernetes")
    command = [program, "template", "restow", str(CHART), "--namespace", namespace, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if run.returncode:
        raise ValueError(run.stderr.strip())
    return run.stdout


def whole() -> str:
    """`deploy/restow.yaml`."""
    made = template("--no-hooks", *(word for one in SECRETS_BY_HAND for word in ("--set", one)))
    return HEAD + EMPTY_NOTES.sub("", HELMS_OWN.sub("", made))


if __name__ == "__main__":
    WHOLE.write_text(whole())
