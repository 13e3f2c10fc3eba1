"""PyPI `kr8s`: objects that wait for themselves, exec, port-forward, labels, scaling."""

import kr8s
import httpx
from kr8s.objects import ConfigMap, Deployment, Pod, Service

api = kr8s.api()


def objects():
    colours = ConfigMap({"metadata": {"name": "colours"}, "data": {"sky": "blue"}})
    assert not colours.exists()
    colours.create()
    assert colours.exists() and colours.metadata.uid
    colours.patch({"data": {"sky": None, "grass": "green"}})
    assert dict(colours.data) == {"grass": "green"}
    colours.label({"kind": "list"})
    colours.annotate({"test.local/note": "kept"})
    colours.refresh()
    assert colours.labels["kind"] == "list" and colours.annotations["test.local/note"] == "kept"
    colours.patch([{"op": "add", "path": "/data/sea", "value": "grey"}], type="json")
    assert [found.name for found in kr8s.get("configmaps", label_selector={"kind": "list"})] == ["colours"]
    colours.delete()
    colours.wait("delete", timeout=20)
    try:
        ConfigMap.get("colours")
        raise AssertionError("it is still there")
    except kr8s.NotFoundError:
        pass
    assert "deployments" in {resource["name"] for resource in api.api_resources()}
    assert api.version()["major"] == "1"
    assert api.whoami() == "system:admin"


def workload():
    web = Deployment({"metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
                "name": "main", "image": "test.local/busybox", "ports": [{"containerPort": 80}],
                "command": ["sh", "-c", "echo serving; echo page > /tmp/index.html; exec httpd -f -p 80 -h /tmp"],
                "readinessProbe": {"httpGet": {"port": 80, "path": "/"}, "periodSeconds": 1}}]}}}})
    web.create()
    service = Service({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})
    service.create()
    web.wait("condition=Available", timeout=60)
    pod = web.pods()[0]
    assert isinstance(pod, Pod) and pod.ready()
    assert list(pod.logs()) == ["serving"]
    assert pod.exec(["cat", "/tmp/index.html"]).stdout == b"page\n"
    failed = pod.exec(["sh", "-c", "echo wrong >&2; exit 3"], check=False)
    assert (failed.returncode, failed.stderr) == (3, b"wrong\n"), failed
    for target in (pod, service):
        with target.portforward(remote_port=80, local_port="auto") as port:
            assert httpx.get(f"http://127.0.0.1:{port}/", timeout=60).text == "page\n"
    web.scale(2)
    web.wait("jsonpath='{.status.readyReplicas}'=2", timeout=60)
    assert service.ready()
    web.delete(propagation_policy="Foreground")
    service.delete()
    web.wait("delete", timeout=60)


objects()
workload()
