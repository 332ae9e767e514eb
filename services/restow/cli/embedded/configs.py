"""The configuration that the embedded stack starts with, as the YAML that a user would write."""

SCHEDULER = """\
# scheduler_session: the embedded stack also answers to the names that Volcano's and Koordinator's examples use.
schedulerNames: [restow, volcano, koord-scheduler]
"""
"""Actions and plugins are Volcano's defaults, which spread pods."""

BINPACK = """\
actions: "enqueue, reserve, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
    arguments:
      leastrequested.weight: 0
      balancedresource.weight: 0
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.resources: nvidia.com/gpu
      binpack.resources.nvidia.com/gpu: 2
  - name: reservation
"""


def scheduler(score: str = "leastAllocated") -> str:
    """`score`: which of the nodes that fit is preferred, `leastAllocated` or `binpack`."""
    return SCHEDULER + (BINPACK if score == "binpack" else "")


POLICY = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: restow
    pluginConfig:
      - name: Defragmentation
        args:
          ResourceType: {resource}
          lowThresholds: {{{resource}: {low}}}
          defragmentThresholds: {{{resource}: {defragment}}}
          protectionThresholds: {{{resource}: {protection}}}
          coolDownTime: {cooldown}
{planner}    plugins:
      balance:
        enabled: [Defragmentation]
{limit}restow:
  interval: {interval}
  concurrent: {concurrent}
  # Nobody's service runs here: plans are carried out as fast as they can be. The defaults are one pod in ten of a workload, and 60 a minute.
  maxUnavailable: 0
  evictionsPerMinute: 0
"""


def policy(
    *,
    resource: str = "nvidia.com/gpu",
    low: int = 40,
    defragment: int = 45,
    protection: int = 95,
    cooldown: int = 0,
    interval: str = "0s",
    concurrent: int = 50,
    objective: str = "",
    most: int = 0,
) -> str:
    """`interval` 0s: only when asked (API, CLI) or by cron. With an `objective` the optimizing planner makes the plans; `most`: pods that one moves at most, 0 for no
    limit."""
    return POLICY.format(
        resource=resource,
        low=low,
        defragment=defragment,
        protection=protection,
        cooldown=cooldown,
        interval=interval,
        concurrent=concurrent,
        planner=f"          planner: optimizing\n          objective: {objective}\n" if objective else "",
        limit=f"maxNoOfPodsToEvictTotal: {most}\n" if most else "",
    )


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: restow, cluster: {{server: "{server}"}}}}]
users: [{{name: restow, user: {{}}}}]
contexts: [{{name: restow, context: {{cluster: restow, user: restow}}}}]
current-context: restow
"""


def kubeconfig(server: str) -> str:
    """What kubectl reads to find the simulated API at `server`."""
    return KUBECONFIG.format(server=server)
