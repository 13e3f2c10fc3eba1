"""PyPI `kubernetes_asyncio`: many requests at once, a watch beside them, exec over its own WebSocket."""

import asyncio

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.rest import ApiException
from kubernetes_asyncio.stream import WsApiClient

SPACE = config.list_kube_config_contexts()[1]["context"]["namespace"]
COUNT = 20


async def many_at_once(core):
    version = (await core.list_namespaced_secret(SPACE)).metadata.resource_version

    async def seen():
        names = set()
        async with watch.Watch().stream(core.list_namespaced_secret, SPACE, resource_version=version,
                                        timeout_seconds=30) as events:
            async for event in events:
                if event["type"] == "DELETED":
                    names.add(event["object"].metadata.name)
                if len(names) == COUNT:
                    return names

    async def one(number):
        metadata = client.V1ObjectMeta(name=f"key-{number}", finalizers=["test.local/hold"])
        made = await core.create_namespaced_secret(
            SPACE, client.V1Secret(metadata=metadata, string_data={"key": str(number)}))
        assert made.data and not made.string_data and made.type == "Opaque"
        held = await core.delete_namespaced_secret(made.metadata.name, SPACE)
        left = await core.read_namespaced_secret(made.metadata.name, SPACE)
        assert left.metadata.deletion_timestamp and left.metadata.uid == made.metadata.uid, held
        release = [{"op": "remove", "path": "/metadata/finalizers"}]
        await core.patch_namespaced_secret(
            made.metadata.name, SPACE, release, _content_type="application/json-patch+json")

    watching = asyncio.create_task(seen())
    await asyncio.gather(*(one(number) for number in range(COUNT)))
    assert await watching == {f"key-{number}" for number in range(COUNT)}


async def pod(core):
    await core.create_namespaced_pod(SPACE, {
        "metadata": {"name": "shell"}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [
            {"name": "main", "image": "test.local/busybox", "command": ["sh", "-c", "echo up; sleep 1000"]}]}})
    async with watch.Watch().stream(core.list_namespaced_pod, SPACE, timeout_seconds=60) as events:
        async for event in events:
            if event["object"].status.phase == "Running":
                break
    assert await core.read_namespaced_pod_log("shell", SPACE) == "up\n"
    async with WsApiClient() as sockets:
        connect = client.CoreV1Api(sockets).connect_get_namespaced_pod_exec
        said = await connect("shell", SPACE, command=["sh", "-c", "echo there; echo wrong >&2"], container="main",
                             stdout=True, stderr=True, stdin=False, tty=False)
        assert said.split() == ["there", "wrong"], said
    await core.delete_namespaced_pod("shell", SPACE, grace_period_seconds=0)


async def refusals(core):
    try:
        await core.patch_namespaced_config_map("missing", SPACE, {"data": {}})
        raise AssertionError("a missing object was patched")
    except ApiException as error:
        assert error.status == 404 and error.reason == "Not Found", error


async def main():
    await config.load_kube_config()
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        await asyncio.gather(many_at_once(core), pod(core), refusals(core))


asyncio.run(main())
