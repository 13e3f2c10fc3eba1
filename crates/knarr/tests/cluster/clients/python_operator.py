"""PyPI `kopf`: an operator on a kind of its own, which comes after the operator has started. A WebSite becomes a
Deployment, its status says how many Pods are ready, and a finalizer gives back what it had."""

import asyncio
import threading
import time

import kopf
from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

SPACE = config.list_kube_config_contexts()[1]["context"]["namespace"]
config.load_kube_config()
core, apps, custom = client.CoreV1Api(), client.AppsV1Api(), client.CustomObjectsApi()
definitions = client.ApiextensionsV1Api()
GROUP, VERSION, PLURAL = "sites.operator.test", "v1", "websites"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP, "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "website", "kind": "WebSite"},
        "versions": [{
            "name": VERSION, "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                "spec": {"type": "object", "properties": {
                    "replicas": {"type": "integer", "minimum": 0, "maximum": 3, "default": 1}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {
                    "ready": {"type": "integer"}}}}}}}]}}
ready, stop = threading.Event(), threading.Event()


# The operator.

@kopf.on.create(GROUP, VERSION, PLURAL)
def created(name, body, spec, **_):
    labels = {"site": name}
    container = {"name": "main", "image": "test.local/busybox", "command": ["sleep", "1000"]}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": spec["replicas"], "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels},
                              "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}}}
    kopf.adopt(deployment, owner=body)
    apps.create_namespaced_deployment(SPACE, deployment)
    return {"deployment": name}


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.replicas")
def scaled(name, new, **_):
    apps.patch_namespaced_deployment_scale(name, SPACE, {"spec": {"replicas": new}})


@kopf.on.event("apps", "v1", "deployments", labels={"site": kopf.PRESENT})
def counted(name, type, status, **_):
    if type != "DELETED":
        count = {"status": {"ready": status.get("readyReplicas", 0)}}
        custom.patch_namespaced_custom_object_status(GROUP, VERSION, SPACE, PLURAL, name, count)


@kopf.on.delete(GROUP, VERSION, PLURAL)
def released(name, **_):
    core.create_namespaced_config_map(SPACE, {"metadata": {"name": f"{name}-released"}})


def operate():
    asyncio.run(kopf.operator(standalone=True, namespaces=[SPACE], ready_flag=ready, stop_flag=stop))


# Who uses it.

def wait_for(condition):
    selected = {"field_selector": "metadata.name=site", "timeout_seconds": 60}
    stream = watch.Watch().stream(custom.list_namespaced_custom_object, GROUP, VERSION, SPACE, PLURAL, **selected)
    for event in stream:
        if condition(event["type"], event["object"], event["object"].get("status", {})):
            return event["object"]
    raise AssertionError("the site never became what was wanted")


def site(**spec):
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "WebSite", "metadata": {"name": "site"}, "spec": spec}


def noticed():
    """kopf takes what its first list of definitions has for known: one that comes between its look at all kinds and that
    list is noticed when it changes."""
    for change in range(60):
        if custom.get_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "site")["metadata"].get("finalizers"):
            return
        labels = {"metadata": {"labels": {"change": str(change)}}}
        definitions.patch_custom_resource_definition(DEFINITION["metadata"]["name"], labels)
        time.sleep(1)
    raise AssertionError("the operator does not look at its kind")


def refused(code, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == code, error
        return
    raise AssertionError(f"{call.__name__} was not refused")


def use():
    definitions.create_custom_resource_definition(DEFINITION)
    refused(422, custom.create_namespaced_custom_object, GROUP, VERSION, SPACE, PLURAL, site(replicas=4))
    made = custom.create_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, site())
    assert made["spec"] == {"replicas": 1}, made
    noticed()
    served = wait_for(lambda _, __, status: status.get("ready") == 1 and "created" in status)
    assert served["status"]["created"] == {"deployment": "site"}, served
    assert served["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"], served
    custom.patch_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "site", {"spec": {"replicas": 2}})
    wait_for(lambda _, __, status: status.get("ready") == 2)

    custom.delete_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "site", propagation_policy="Foreground")
    wait_for(lambda change, *_: change == "DELETED")
    core.read_namespaced_config_map("site-released", SPACE)
    refused(404, apps.read_namespaced_deployment, "site", SPACE)


operator = threading.Thread(target=operate)
operator.start()
try:
    assert ready.wait(60), "the operator did not start"
    use()
finally:
    stop.set()
    operator.join()
