"""PyPI `kopf`: an operator on built-in kinds. A labelled ConfigMap becomes a Deployment and a Service, the Service gets
an address in its status, and a finalizer gives the address back before the ConfigMap goes."""

import asyncio
import threading

import kopf
from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

SPACE = config.list_kube_config_contexts()[1]["context"]["namespace"]
config.load_kube_config()
core, apps = client.CoreV1Api(), client.AppsV1Api()
FINALIZER, STATE, ADDRESS = "operator.test/release", "operator.test/state", "203.0.113.7"
SITE = {"operator.test/site": kopf.PRESENT}
ready, stop = threading.Event(), threading.Event()
retries = []


# The operator.

@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = FINALIZER


@kopf.index("configmaps", labels=SITE)
def sites(name, body, **_):
    return {name: body["data"]["replicas"]}


@kopf.on.create("configmaps", labels=SITE)
def created(name, body, patch, retry, logger, **_):
    retries.append(retry)
    if retry == 0:
        raise kopf.TemporaryError("the first attempt always fails", delay=0.1)
    labels = {"app": name}
    container = {"name": "main", "image": "test.local/busybox", "command": ["sleep", "1000"]}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": int(body["data"]["replicas"]), "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels},
                              "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"balanced": "yes"}},
               "spec": {"type": "LoadBalancer", "loadBalancerClass": "operator.test/balancer", "selector": labels, "ports": [{"port": 80}]}}
    kopf.adopt([deployment, service], owner=body)
    apps.create_namespaced_deployment(SPACE, deployment)
    core.create_namespaced_service(SPACE, service)
    patch.metadata.annotations[STATE] = "served"
    kopf.info(body, reason="Served", message=f"{name} has a Deployment and a Service")
    logger.info("served %s", name)


@kopf.on.update("configmaps", labels=SITE, field="data.replicas")
def scaled(name, old, new, sites, **_):
    assert new in sites[name] and old != new, (old, new, sites[name])
    apps.patch_namespaced_deployment_scale(name, SPACE, {"spec": {"replicas": int(new)}})


@kopf.on.delete("configmaps", labels=SITE)
def released(name, **_):
    core.create_namespaced_config_map(SPACE, {"metadata": {"name": f"{name}-released"}, "data": {"ip": ADDRESS}})


@kopf.on.create("services", labels={"balanced": "yes"})
def balanced(patch, **_):
    patch.status["loadBalancer"] = {"ingress": [{"ip": ADDRESS}]}


def operate():
    asyncio.run(kopf.operator(standalone=True, namespaces=[SPACE], ready_flag=ready, stop_flag=stop))


# Who uses it.

def wait_for(list_them, name, condition):
    selected = {"field_selector": f"metadata.name={name}", "timeout_seconds": 60}
    for event in watch.Watch().stream(list_them, SPACE, **selected):
        if condition(event):
            return event["object"]
    raise AssertionError(f"{name} never became what was wanted")


def use():
    core.create_namespaced_config_map(
        SPACE, {"metadata": {"name": "site", "labels": {"operator.test/site": ""}}, "data": {"replicas": "1"}})
    served = wait_for(core.list_namespaced_config_map, "site",
                      lambda event: (event["object"].metadata.annotations or {}).get(STATE) == "served")
    assert served.metadata.finalizers == [FINALIZER] and retries == [0, 1], (served.metadata, retries)
    wait_for(apps.list_namespaced_deployment, "site", lambda event: event["object"].status.ready_replicas == 1)
    service = wait_for(core.list_namespaced_service, "site", lambda event: event["object"].status.load_balancer.ingress)
    assert service.status.load_balancer.ingress[0].ip == ADDRESS
    managers = {(entry.manager, entry.subresource) for entry in service.metadata.managed_fields}
    assert any(manager.startswith("kopf") and sub == "status" for manager, sub in managers), managers

    core.patch_namespaced_config_map("site", SPACE, {"data": {"replicas": "2"}})
    wait_for(apps.list_namespaced_deployment, "site", lambda event: event["object"].status.ready_replicas == 2)

    about = {"field_selector": "involvedObject.name=site,source=kopf", "timeout_seconds": 60}
    told = next(watch.Watch().stream(core.list_namespaced_event, SPACE, **about))["object"]
    assert (told.reason, told.message) == ("Served", "site has a Deployment and a Service"), told
    assert told.involved_object.uid == served.metadata.uid, told

    core.delete_namespaced_config_map("site", SPACE, propagation_policy="Foreground")
    wait_for(core.list_namespaced_config_map, "site", lambda event: event["type"] == "DELETED")
    assert core.read_namespaced_config_map("site-released", SPACE).data == {"ip": ADDRESS}
    for read in (apps.read_namespaced_deployment, core.read_namespaced_service):
        try:
            read("site", SPACE)
            raise AssertionError("what belonged to the ConfigMap is still there")
        except ApiException as error:
            assert error.status == 404, error


operator = threading.Thread(target=operate)
operator.start()
try:
    assert ready.wait(60), "the operator did not start"
    use()
finally:
    stop.set()
    operator.join()
