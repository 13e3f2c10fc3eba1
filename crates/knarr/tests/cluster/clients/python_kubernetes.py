"""PyPI `kubernetes`: the official client, typed and dynamic, with everything that streams."""

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import portforward, stream

SPACE = config.list_kube_config_contexts()[1]["context"]["namespace"]
config.load_kube_config()
core, apps = client.CoreV1Api(), client.AppsV1Api()


def refused(status, reason, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == status and f'"reason":"{reason}"' in error.body, (error.status, error.body)
        return error.body
    raise AssertionError(f"{call.__name__} was not refused with {status}")


def objects():
    made = core.create_namespaced_config_map(
        SPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="colours"), data={"sky": "blue"})
    )
    assert made.metadata.uid and made.metadata.creation_timestamp.tzinfo
    refused(409, "AlreadyExists", core.create_namespaced_config_map, SPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="colours")))
    merged = core.patch_namespaced_config_map("colours", SPACE, {"data": {"grass": "green"}})
    assert merged.data == {"sky": "blue", "grass": "green"}
    steps = [{"op": "remove", "path": "/data/sky"}, {"op": "test", "path": "/data/grass", "value": "green"}]
    assert core.patch_namespaced_config_map("colours", SPACE, steps).data == {"grass": "green"}
    stale = merged
    stale.data = {"sky": "grey"}
    refused(409, "Conflict", core.replace_namespaced_config_map, "colours", SPACE, stale)
    body = refused(422, "Invalid", core.create_namespaced_service, SPACE, client.V1Service(
        metadata=client.V1ObjectMeta(name="Wrong"), spec=client.V1ServiceSpec(ports=[client.V1ServicePort(port=0)])))
    assert "metadata.name" in body and "spec.ports[0].port" in body, body
    dry = core.create_namespaced_config_map(
        SPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="dry")), dry_run="All")
    assert dry.metadata.uid
    refused(404, "NotFound", core.read_namespaced_config_map, "dry", SPACE)


def pages_and_watch():
    version = core.list_namespaced_config_map(SPACE).metadata.resource_version
    for number in range(5):
        core.create_namespaced_config_map(SPACE, client.V1ConfigMap(
            metadata=client.V1ObjectMeta(generate_name="many-", labels={"number": str(number)})))
    page = core.list_namespaced_config_map(SPACE, limit=2, label_selector="number")
    names, pages = [item.metadata.name for item in page.items], 1
    while page.metadata._continue:
        page = core.list_namespaced_config_map(
            SPACE, limit=2, label_selector="number", _continue=page.metadata._continue)
        names += [item.metadata.name for item in page.items]
        pages += 1
    assert len(set(names)) == 5 and pages == 3, (names, pages)
    core.delete_collection_namespaced_config_map(SPACE, label_selector="number in (0,1,2,3,4)")
    seen, watching = [], watch.Watch()
    for event in watching.stream(core.list_namespaced_config_map, SPACE, label_selector="number",
                                 resource_version=version, timeout_seconds=20):
        seen.append(event["type"])
        if len(seen) == 10:
            watching.stop()
    assert seen == ["ADDED"] * 5 + ["DELETED"] * 5, seen


def pod():
    utils.create_from_dict(client.ApiClient(), {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": "test.local/busybox",
            "command": ["sh", "-c", "echo started; echo welcome > /tmp/index.html; exec httpd -f -p 80 -h /tmp"],
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}}]}}, namespace=SPACE)
    watching = watch.Watch()
    for event in watching.stream(core.list_namespaced_pod, SPACE, field_selector="metadata.name=web",
                                 timeout_seconds=60):
        conditions = event["object"].status.conditions or []
        if any(it.type == "Ready" and it.status == "True" for it in conditions):
            watching.stop()


def streams():
    assert core.read_namespaced_pod_log("web", SPACE).strip() == "started"
    followed = watch.Watch()
    for line in followed.stream(core.read_namespaced_pod_log, "web", SPACE):
        assert line == "started"
        followed.stop()
    connect = core.connect_get_namespaced_pod_exec
    said = stream(connect, "web", SPACE, command=["cat", "/tmp/index.html"], stdout=True, stderr=True)
    assert said == "welcome\n", said
    shell = stream(connect, "web", SPACE, command=["sh"], stdin=True, stdout=True, stderr=True,
                   _preload_content=False)
    shell.write_stdin("echo to-stdout; echo to-stderr >&2; exit 7\n")
    shell.run_forever(timeout=20)
    assert (shell.read_stdout(), shell.read_stderr(), shell.returncode) == ("to-stdout\n", "to-stderr\n", 7)
    forward = portforward(core.connect_get_namespaced_pod_portforward, "web", SPACE, ports="80")
    http = forward.socket(80)
    http.setblocking(True)
    http.sendall(b"GET / HTTP/1.0\r\nHost: web\r\n\r\n")
    answer = b""
    while more := http.recv(4096):
        answer += more
    http.close()
    assert answer.endswith(b"welcome\n") and forward.error(80) is None, (answer, forward.error(80))
    proxied = core.connect_get_namespaced_pod_proxy_with_path("web:80", SPACE, "index.html")
    assert proxied == "welcome\n", proxied


def deployment():
    labels = {"app": "scaled"}
    apps.create_namespaced_deployment(SPACE, client.V1Deployment(
        metadata=client.V1ObjectMeta(name="scaled"),
        spec=client.V1DeploymentSpec(
            replicas=0, selector=client.V1LabelSelector(match_labels=labels),
            template=client.V1PodTemplateSpec(
                metadata=client.V1ObjectMeta(labels=labels),
                spec=client.V1PodSpec(containers=[client.V1Container(name="main", image="test.local/busybox",
                                                                     command=["sleep", "1000"])])))))
    assert apps.read_namespaced_deployment_scale("scaled", SPACE).spec.replicas == 0
    apps.patch_namespaced_deployment_scale("scaled", SPACE, {"spec": {"replicas": 1}})
    for event in (watching := watch.Watch()).stream(apps.list_namespaced_deployment, SPACE, timeout_seconds=60):
        if event["object"].status.ready_replicas == 1:
            watching.stop()
    apps.delete_namespaced_deployment("scaled", SPACE, propagation_policy="Foreground",
                                      grace_period_seconds=0)


def dynamically():
    any_kind = dynamic.DynamicClient(client.ApiClient())
    roles = any_kind.resources.get(api_version="rbac.authorization.k8s.io/v1", kind="Role")
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
            "rules": [rule]}
    applied = roles.server_side_apply(body=role, namespace=SPACE, field_manager="script")
    assert applied.metadata.managedFields[0].manager == "script"
    try:
        changed = {**role, "rules": [{**rule, "verbs": ["list"]}]}
        roles.server_side_apply(body=changed, namespace=SPACE, field_manager="another")
        raise AssertionError("no conflict")
    except dynamic.exceptions.ConflictError as error:
        assert 'conflict with \\"script\\": .rules' in error.body, error.body
    roles.delete(name="reader", namespace=SPACE)
    review = client.AuthorizationV1Api().create_self_subject_access_review(client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="delete", resource="nodes"))))
    assert review.status.allowed
    assert client.VersionApi().get_code().major == "1"
    assert "apps" in [group.name for group in client.ApisApi().get_api_versions().groups]


for part in (objects, pages_and_watch, pod, streams, deployment, dynamically):
    part()
    print("done:", part.__name__, flush=True)
core.delete_namespaced_pod("web", SPACE, body=client.V1DeleteOptions(grace_period_seconds=0))
