"""The webhook's manifests stand in for the admission policy, and for nothing else."""

from deploy.manifests import build, containers, named, of_kind


def test_the_webhook_takes_the_policys_place_and_everything_else_is_deploy_beside():
    beside, hook = build("beside"), build("webhook/gate")
    policies = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    keys = [{(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in manifests} for manifests in (beside, hook)]
    assert keys[0] - keys[1] == {(kind, "", "restow-landing") for kind in policies}
    assert {kind for kind, _, name in keys[1] - keys[0] if name == "restow-landing"} == {"MutatingWebhookConfiguration"}
    assert {name for _, _, name in keys[1] - keys[0]} == {"restow-landing", "restow-webhook"}


def test_it_fails_open_is_asked_about_the_same_pods_and_may_read_landings_alone():
    policy = named(build("beside"), "MutatingAdmissionPolicy", "restow-landing")["spec"]["matchConstraints"]
    manifests = build("webhook/cert-manager")
    (asked,) = named(manifests, "MutatingWebhookConfiguration", "restow-landing")["webhooks"]
    assert (asked["failurePolicy"], asked["timeoutSeconds"], asked["sideEffects"], asked["reinvocationPolicy"]) == ("Ignore", 1, "None", "Never")
    assert (asked["rules"], asked["namespaceSelector"]) == (policy["resourceRules"], policy["namespaceSelector"])
    assert named(manifests, "ClusterRole", "restow-webhook")["rules"] == [{"apiGroups": ["restow.dev"], "resources": ["landings"], "verbs": ["list", "watch"]}]


def test_its_certificate_is_for_its_service_and_in_the_secret_that_it_reads():
    manifests = build("webhook/cert-manager")
    certificate, (service,) = named(manifests, "Certificate", "restow-webhook"), of_kind(manifests, "Service")
    meta, workload = service["metadata"], named(manifests, "Deployment", "restow-webhook")
    assert certificate["spec"]["dnsNames"] == [f"{meta['name']}.{meta['namespace']}.svc"]
    (volume,) = workload["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    annotations = named(manifests, "MutatingWebhookConfiguration", "restow-landing")["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": f"{meta['namespace']}/{certificate['metadata']['name']}"}
    (container,) = containers(workload)
    assert container["command"] == ["restow", "webhook"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
