// npm `@kubernetes/client-node`: objects and patches, an informer, watches, and everything that streams.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const namespace = config.getContextObject(config.getCurrentContext()).namespace;
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const by = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);

async function refused(call, code, reason) {
    const error = await call.then(() => assert.fail(`not refused with ${code}`), (error) => error);
    const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
    assert.deepEqual([error.code, status.reason], [code, reason]);
    return status;
}

async function objects() {
    const body = { metadata: { name: 'colours', labels: { kept: 'yes' } }, data: { sky: 'blue' } };
    const made = await core.createNamespacedConfigMap({ namespace, body });
    assert.ok(made.metadata.uid && made.metadata.creationTimestamp instanceof Date);
    await refused(core.createNamespacedConfigMap({ namespace, body }), 409, 'AlreadyExists');
    const name = 'colours';
    const patch = (body, strategy, more) =>
        core.patchNamespacedConfigMap({ name, namespace, body, ...more }, by(strategy));
    const merged = await patch({ data: { grass: 'green' } }, k8s.PatchStrategy.MergePatch);
    assert.deepEqual(merged.data, { sky: 'blue', grass: 'green' });
    const steps = [{ op: 'remove', path: '/data/sky' }, { op: 'test', path: '/data/grass', value: 'green' }];
    assert.deepEqual((await patch(steps, k8s.PatchStrategy.JsonPatch)).data, { grass: 'green' });
    const strategic = { metadata: { labels: { kept: null } } };
    assert.deepEqual((await patch(strategic, k8s.PatchStrategy.StrategicMergePatch)).metadata.labels ?? {}, {});
    const applied = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name }, data: { grass: 'yellow' } };
    const apply = (force) =>
        patch(applied, k8s.PatchStrategy.ServerSideApply, { fieldManager: 'script', force });
    const conflict = await refused(apply(false), 409, 'Conflict');
    assert.equal(conflict.details.causes[0].field, '.data.grass');
    assert.deepEqual((await apply(true)).data, { grass: 'yellow' });
    made.data = { sky: 'grey' };
    await refused(core.replaceNamespacedConfigMap({ name, namespace, body: made }), 409, 'Conflict');
    const wrong = { metadata: { name: 'Wrong' }, spec: { ports: [{ port: 0 }] } };
    const invalid = await refused(core.createNamespacedService({ namespace, body: wrong }), 422, 'Invalid');
    assert.ok(invalid.details.causes.some((cause) => cause.field === 'spec.ports[0].port'));
    await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'dry' } }, dryRun: 'All' });
    await refused(core.readNamespacedConfigMap({ name: 'dry', namespace }), 404, 'NotFound');
}

async function informer() {
    const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: 'informed' });
    const path = `/api/v1/namespaces/${namespace}/configmaps`;
    const informer = k8s.makeInformer(config, path, list, 'informed');
    const seen = [];
    const reached = new Promise((resolve, reject) => {
        for (const verb of ['add', 'update', 'delete']) {
            informer.on(verb, (object) => {
                seen.push(`${verb} ${object.metadata.name}`);
                if (verb === 'delete' && object.metadata.name === 'last') resolve();
            });
        }
        informer.on('error', reject);
    });
    const create = (name) =>
        core.createNamespacedConfigMap({ namespace, body: { metadata: { name, labels: { informed: '' } } } });
    await create('before');
    await informer.start();
    await create('after');
    const body = { data: { a: 'b' } };
    await core.patchNamespacedConfigMap({ name: 'before', namespace, body }, by(k8s.PatchStrategy.MergePatch));
    await create('last');
    await core.deleteNamespacedConfigMap({ name: 'last', namespace });
    await reached;
    assert.deepEqual(seen, ['add before', 'add after', 'update before', 'add last', 'delete last']);
    assert.deepEqual(informer.list(namespace).map((it) => it.metadata.name).sort(), ['after', 'before']);
    await informer.stop();
    await core.deleteCollectionNamespacedConfigMap({ namespace, labelSelector: 'informed' });
    assert.equal((await list()).items.length, 0);
}

// Watches one object until `condition` holds for it.
async function until(path, name, condition) {
    return new Promise((resolve, reject) => {
        const query = { fieldSelector: `metadata.name=${name}`, timeoutSeconds: 60 };
        const watching = new k8s.Watch(config).watch(path, query, async (type, object) => {
            if (condition(object, type)) {
                resolve(object);
                (await watching).abort();
            }
        }, (error) => reject(error ?? new Error(`${name} never became what was wanted`)));
    });
}

async function pod() {
    const command = ['sh', '-c', 'echo started; echo welcome > /tmp/index.html; exec httpd -f -p 80 -h /tmp'];
    const readinessProbe = { httpGet: { path: '/', port: 80 }, periodSeconds: 1 };
    const containers = [{ name: 'main', image: 'test.local/busybox', command, readinessProbe }];
    await k8s.KubernetesObjectApi.makeApiClient(config).create({
        apiVersion: 'v1', kind: 'Pod', metadata: { name: 'web', namespace, labels: { app: 'web' } },
        spec: { terminationGracePeriodSeconds: 0, containers },
    });
    const isReady = (pod) => pod.status?.conditions?.some((it) => it.type === 'Ready' && it.status === 'True');
    await until(`/api/v1/namespaces/${namespace}/pods`, 'web', isReady);
}

// What a command in the Pod prints, and how it ends.
async function run(command, stdin = null, tty = false) {
    const [stdout, stderr] = [new PassThrough(), tty ? null : new PassThrough()];
    const output = Promise.all([text(stdout), stderr ? text(stderr) : '']);
    const status = await new Promise((resolve, reject) => {
        const exec = new k8s.Exec(config).exec(namespace, 'web', 'main', command, stdout, stderr, stdin, tty, resolve);
        exec.catch(reject);
    });
    return [...(await output), status];
}

async function streams() {
    const log = new PassThrough();
    await new k8s.Log(config).log(namespace, 'web', 'main', log, { tailLines: 1 });
    assert.equal(await text(log), 'started\n');
    const followed = new PassThrough();
    const following = await new k8s.Log(config).log(namespace, 'web', 'main', followed, { follow: true });
    const [line] = await once(followed, 'data');
    assert.equal(line.toString(), 'started\n');
    following.abort();

    const [stdout, stderr, status] = await run(['sh', '-c', 'echo out; echo err >&2; exit 7']);
    assert.deepEqual([stdout, stderr, status.status], ['out\n', 'err\n', 'Failure']);
    assert.deepEqual([status.reason, status.details.causes[0].message], ['NonZeroExitCode', '7']);
    const much = randomBytes(300_000);
    const sum = createHash('sha256').update(much).digest('hex');
    const [summed, , ended] = await run(['sha256sum'], Readable.from([much.subarray(0, 7), much.subarray(7)]));
    assert.deepEqual([summed, ended.status], [`${sum}  -\n`, 'Success']);
    assert.equal((await run(['sh', '-c', 'test -t 1 && echo terminal'], null, true))[0], 'terminal\r\n');

    const [answer, input] = [new PassThrough(), new PassThrough()];
    const socket = await new k8s.PortForward(config).portForward(namespace, 'web', [80], answer, null, input);
    socket.on('close', () => answer.end());
    input.write('GET / HTTP/1.0\r\nHost: web\r\n\r\n');
    assert.ok((await text(answer)).endsWith('welcome\n'));
    const proxied = await core.connectGetNamespacedPodProxyWithPath({ name: 'web:80', namespace, path: 'index.html' });
    assert.equal(proxied, 'welcome\n');
}

async function copied() {
    const folder = mkdtempSync(join(tmpdir(), 'cp-'));
    const bytes = randomBytes(100_000);
    writeFileSync(join(folder, 'copied'), bytes);
    // Cp does not say when it has finished; the socket that it works with does.
    const exec = new k8s.Exec(config);
    await new Promise((resolve, reject) => {
        const watched = { exec: async (...all) => (await exec.exec(...all)).on('close', resolve) };
        new k8s.Cp(config, watched).cpToPod(namespace, 'web', 'main', folder, '/tmp').catch(reject);
    });
    const sum = createHash('sha256').update(bytes).digest('hex');
    assert.equal((await run(['sha256sum', '/tmp/copied']))[0], `${sum}  /tmp/copied\n`);
}

async function deployment() {
    const labels = { app: 'scaled' };
    const containers = [{ name: 'main', image: 'test.local/busybox', command: ['sleep', '1000'] }];
    const template = { metadata: { labels }, spec: { terminationGracePeriodSeconds: 0, containers } };
    const body = { metadata: { name: 'scaled' }, spec: { replicas: 0, selector: { matchLabels: labels }, template } };
    await apps.createNamespacedDeployment({ namespace, body });
    const scale = await apps.readNamespacedDeploymentScale({ name: 'scaled', namespace });
    scale.spec.replicas = 1;
    // Whatever the controller has written meanwhile.
    delete scale.metadata.resourceVersion;
    await apps.replaceNamespacedDeploymentScale({ name: 'scaled', namespace, body: scale });
    const path = `/apis/apps/v1/namespaces/${namespace}/deployments`;
    await until(path, 'scaled', (it) => it.status?.readyReplicas === 1);
    await apps.deleteNamespacedDeployment({ name: 'scaled', namespace, propagationPolicy: 'Foreground' });
    const any = k8s.KubernetesObjectApi.makeApiClient(config);
    const roles = await any.list('rbac.authorization.k8s.io/v1', 'ClusterRole');
    assert.ok(roles.items.some((role) => role.metadata.name === 'cluster-admin'));
    assert.equal((await config.makeApiClient(k8s.VersionApi).getCode()).major, '1');
}

for (const part of [objects, informer, pod, streams, copied, deployment]) {
    await part();
    console.log('done:', part.name);
}
await core.deleteNamespacedPod({ name: 'web', namespace, body: { gracePeriodSeconds: 0 } });
