"""PyPI `lightkube`: server-side apply with owners of fields, patches, watches, waits, subresources, logs."""

from lightkube import ApiError, Client, codecs
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Pod, Service
from lightkube.types import CascadeType, PatchType

kube = Client(field_manager="lightkube")


def owners(found):
    return {entry.manager for entry in found.metadata.managedFields}


def applied():
    first = ConfigMap(apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="shared"), data={"a": "1", "b": "1"})
    made = kube.apply(first)
    assert made.metadata.managedFields[0].operation == "Apply" and owners(made) == {"lightkube"}
    other = ConfigMap(apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="shared"), data={"b": "2", "c": "2"})
    try:
        kube.apply(other, field_manager="other")
        raise AssertionError("no conflict")
    except ApiError as error:
        assert error.status.reason == "Conflict", error.status
        assert error.status.message == 'Apply failed with 1 conflict: conflict with "lightkube": .data.b', error.status
        cause = error.status.details.causes[0]
        assert (cause.reason, cause.field) == ("FieldManagerConflict", ".data.b"), cause
    assert kube.apply(other, field_manager="other", force=True).data == {"a": "1", "b": "2", "c": "2"}
    first.data = {}
    left = kube.apply(first)
    assert left.data == {"b": "2", "c": "2"}, left.data


def workload():
    manifest = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: test.local/busybox
        command: [sh, -c, 'echo ready; exec sleep 1000']
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""
    for item in codecs.load_all_yaml(manifest):
        kube.create(item)
    assert kube.wait(Deployment, "web", for_conditions=["Available"]).status.readyReplicas == 1
    pod = next(iter(kube.list(Pod, labels={"app": "web"})))
    assert list(kube.log(pod.metadata.name)) == ["ready\n"]
    scaled = kube.replace(Deployment.Scale(metadata=ObjectMeta(name="web", namespace=kube.namespace),
                                           spec=ScaleSpec(replicas=2)), "web")
    assert scaled.spec.replicas == 2
    for event, found in kube.watch(Deployment, fields={"metadata.name": "web"}, server_timeout=60):
        if found.status.readyReplicas == 2:
            break
    ports = {"spec": {"ports": [{"port": 443, "name": "tls"}, {"port": 80, "name": "plain"}]}}
    patched = kube.patch(Service, "web", ports, patch_type=PatchType.STRATEGIC)
    assert {port.name for port in patched.spec.ports} == {"tls", "plain"}
    removed = kube.patch(Service, "web", {"spec": {"ports": [{"$patch": "delete", "port": 80}]}})
    assert [port.port for port in removed.spec.ports] == [443]
    by_json = [{"op": "replace", "path": "/spec/ports/0/port", "value": 444}]
    assert kube.patch(Service, "web", by_json, patch_type=PatchType.JSON).spec.ports[0].port == 444
    kube.delete(Deployment, "web", cascade=CascadeType.FOREGROUND)
    kube.delete(Service, "web")


def collections():
    for number in range(7):
        kube.create(ConfigMap(metadata=ObjectMeta(generateName="many-", labels={"set": str(number % 2)})))
    found = list(kube.list(ConfigMap, labels={"set": ["0"]}, chunk_size=2))
    assert len(found) == 4, found
    found[0].data = {"k": "v"}
    assert kube.replace(found[0]).data == {"k": "v"}
    try:
        kube.replace(found[0])
        raise AssertionError("no conflict")
    except ApiError as error:
        assert error.status.reason == "Conflict" and "the object has been modified" in error.status.message
    kube.deletecollection(ConfigMap)
    assert not list(kube.list(ConfigMap, labels={"set": ["0", "1"]}))
    assert kube.get(Namespace, kube.namespace).status.phase == "Active"


applied()
workload()
collections()
