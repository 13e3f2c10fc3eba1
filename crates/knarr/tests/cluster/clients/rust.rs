//! The Rust client `kube`, from outside: over TLS with the administrator's kubeconfig, typed, with everything that its
//! runtime stands on: watcher, reflector, controller, finalizer, events, server-side apply, and what streams.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event as StoredEvent, Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    AttachParams, DeleteParams, EvictParams, ListParams, LogParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Wanted, finalizer};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use testkit::Cluster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{cluster, must};

const NAMESPACE: &str = "rust-kube";
const FINALIZER: &str = "operator.test/finalizer";
/// Anything that is waited for.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn the_rust_client_does_its_work_from_outside() {
    let cluster = cluster();
    // The thread stays in the cluster's network namespace; so do the runtime's, which it starts.
    let worked = std::thread::scope(|scope| scope.spawn(|| work(&cluster)).join().unwrap());
    must(worked);
    must(cluster.remove());
}

fn work(cluster: &Cluster) -> Result<()> {
    cluster.enter()?;
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let namespace = Namespace { metadata: named(NAMESPACE), ..Namespace::default() };
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        objects(&client).await.context("objects")?;
        reflected(&client, watcher::Config::default()).await.context("reflector, list and watch")?;
        reflected(&client, watcher::Config::default().streaming_lists())
            .await
            .context("reflector, streaming")?;
        controlled(&client).await.context("controller")?;
        streams(&client).await.context("streams")
    })
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn config_map(name: &str, key: &str, value: &str) -> ConfigMap {
    let data = [(key.to_owned(), value.to_owned())].into();
    ConfigMap { metadata: named(name), data: Some(data), ..ConfigMap::default() }
}

/// Waits until `name` is as wanted; answers what it then is.
async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Result<Option<K>>
where
    K: Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let found = tokio::time::timeout(TIMEOUT, await_condition(api.clone(), name, condition)).await;
    Ok(found.with_context(|| format!("{name} never became what was wanted"))??)
}

async fn objects(client: &Client) -> Result<()> {
    let version = client.apiserver_version().await?;
    ensure!(version.major == "1", "{version:?}");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let made = maps.create(&PostParams::default(), &config_map("colours", "sky", "blue")).await?;
    let again = maps.create(&PostParams::default(), &config_map("colours", "sky", "blue")).await;
    ensure!(matches!(&again, Err(kube::Error::Api(status)) if status.is_already_exists()), "{again:?}");
    let green = Patch::Merge(json!({"data": {"grass": "green"}}));
    let merged = maps.patch("colours", &PatchParams::default(), &green).await?;
    ensure!(merged.data.unwrap_or_default().len() == 2, "a merge keeps what it does not name");
    let stale = maps.replace("colours", &PostParams::default(), &made).await;
    ensure!(matches!(&stale, Err(kube::Error::Api(status)) if status.is_conflict()), "{stale:?}");

    let mine = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"sky": "red"}});
    let applying = PatchParams::apply("script");
    let conflict = maps.patch("colours", &applying, &Patch::Apply(&mine)).await;
    let Err(kube::Error::Api(status)) = conflict else { anyhow::bail!("no conflict: {conflict:?}") };
    let fields: Vec<_> =
        status.details.iter().flat_map(|details| &details.causes).map(|c| &c.field).collect();
    ensure!(fields == [".data.sky"], "{status:?}");
    let forced = maps.patch("colours", &applying.clone().force(), &Patch::Apply(&mine)).await?;
    ensure!(forced.data.unwrap_or_default()["sky"] == "red", "forced");
    let left = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let left = maps.patch("colours", &applying, &Patch::Apply(&left)).await?;
    ensure!(left.data.unwrap_or_default().keys().eq(["grass"]), "what nobody applies any more goes");

    let entry = maps.entry("counted").await?.or_insert(|| config_map("counted", "n", "0"));
    let mut entry = entry;
    entry.get_mut().data.get_or_insert_default().insert("n".into(), "1".into());
    entry.commit(&PostParams::default()).await?;
    let pages = ListParams::default().limit(1);
    let page = maps.list_metadata(&pages).await?;
    ensure!(page.items.len() == 1 && page.metadata.continue_.is_some(), "{page:?}");
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().fields("metadata.name=counted"))
        .await?;
    ensure!(maps.get_opt("counted").await?.is_none(), "deleted");
    Ok(())
}

/// A store that follows the cluster, whichever way its list comes.
async fn reflected(client: &Client, config: watcher::Config) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let label = |name: &str| {
        let mut map = config_map(name, "a", "b");
        map.labels_mut().insert("reflected".into(), "yes".into());
        map
    };
    maps.create(&PostParams::default(), &label("before")).await?;
    let (reader, writer) = reflector::store();
    let following = watcher(maps.clone(), config.labels("reflected=yes")).default_backoff().reflect(writer);
    let mut following = Box::pin(following.touched_objects());
    let mut seen = Vec::new();
    let work = async {
        let first = following.try_next().await?.context("the watch ended")?;
        seen.push(first.name_any());
        maps.create(&PostParams::default(), &label("after")).await?;
        let patch = Patch::Merge(json!({"data": {"a": "c"}}));
        maps.patch("before", &PatchParams::default(), &patch).await?;
        // It does not belong to the selection any more, although it is still there.
        let unlabelled = Patch::Merge(json!({"metadata": {"labels": {"reflected": "no"}}}));
        maps.patch("after", &PatchParams::default(), &unlabelled).await?;
        while seen.len() < 4 {
            seen.push(following.try_next().await?.context("the watch ended")?.name_any());
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(TIMEOUT, work).await.context("the watch stands still")??;
    ensure!(seen == ["before", "after", "before", "after"], "{seen:?}");
    let stored: Vec<_> = reader.state().iter().map(|map| map.name_any()).collect();
    ensure!(stored == ["before"], "{stored:?}");
    let kept = reader.get(&ObjectRef::new("before").within(NAMESPACE)).context("not in the store")?;
    ensure!(kept.data.as_ref().is_some_and(|data| data["a"] == "c"), "{kept:?}");
    for name in ["before", "after"] {
        maps.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// What the controller works with.
struct Tools {
    client: Client,
    recorder: Recorder,
}

/// Each labelled ConfigMap gets a copy that it owns, kept as it should be; a finalizer leaves a note behind.
async fn reconcile(
    map: Arc<ConfigMap>,
    ctx: Arc<Tools>,
) -> Result<Action, kube::runtime::finalizer::Error<kube::Error>> {
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), NAMESPACE);
    finalizer(&maps, FINALIZER, map, async |wanted| {
        let applying = PatchParams::apply("copier").force();
        match wanted {
            Wanted::Apply(map) => {
                let mut copy = config_map(&format!("{}-copy", map.name_any()), "copied", "yes");
                copy.data = map.data.clone();
                copy.metadata.owner_references = map.controller_owner_ref(&()).map(|owner| vec![owner]);
                maps.patch(&copy.name_any(), &applying, &Patch::Apply(&copy)).await?;
                let event = Event {
                    type_: EventType::Normal,
                    reason: "Copied".into(),
                    note: Some(format!("{} has a copy", map.name_any())),
                    action: "Copy".into(),
                    secondary: Some(copy.object_ref(&())),
                };
                ctx.recorder.publish(&event, &map.object_ref(&())).await?;
            }
            Wanted::Cleanup(map) => {
                let note = config_map(&format!("{}-gone", map.name_any()), "gone", "yes");
                maps.patch(&note.name_any(), &applying, &Patch::Apply(&note)).await?;
            }
        }
        Ok(Action::await_change())
    })
    .await
}

async fn controlled(client: &Client) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let reporter = Reporter { controller: "copier".into(), instance: Some("copier-0".into()) };
    let context = Tools { client: client.clone(), recorder: Recorder::new(client.clone(), reporter) };
    let controller = Controller::new(maps.clone(), watcher::Config::default().labels("copied"))
        .owns(maps.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(context));
    // A conflict, or an object that is gone, is tried again: only whoever waits in vain wants to know.
    let mut failures = Vec::new();
    let controller = controller.for_each(|ended| {
        failures.extend(ended.err().map(|error| format!("{error:?}")));
        futures::future::ready(())
    });
    let used = tokio::select! {
        () = controller => anyhow::bail!("the controller ended"),
        used = use_controller(client, &maps) => used,
    };
    used.with_context(|| failures.join("\n"))
}

async fn use_controller(client: &Client, maps: &Api<ConfigMap>) -> Result<()> {
    let mut map = config_map("original", "a", "b");
    map.labels_mut().insert("copied".into(), String::new());
    maps.create(&PostParams::default(), &map).await?;
    let has = |key: &'static str, value: &'static str| {
        move |map: Option<&ConfigMap>| {
            map.and_then(|map| map.data.as_ref()?.get(key)).is_some_and(|found| found == value)
        }
    };
    let copy = until(maps, "original-copy", has("a", "b")).await?.context("no copy")?;
    let owner = copy.owner_references().first().context("no owner")?;
    ensure!(owner.name == "original" && owner.controller == Some(true), "{owner:?}");
    let uid = copy.uid().context("no uid")?;
    maps.delete("original-copy", &DeleteParams::default()).await?;
    until(maps, "original-copy", conditions::is_deleted(&uid)).await?;
    let again = until(maps, "original-copy", has("a", "b")).await?.context("no copy")?;
    ensure!(again.uid() != Some(uid), "it was made again");
    maps.patch("original", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "c"}}))).await?;
    let changed = until(maps, "original-copy", has("a", "c")).await?.context("no copy")?;

    let told = ListParams::default().fields("involvedObject.name=original,reason=Copied");
    let events = Api::<StoredEvent>::namespaced(client.clone(), NAMESPACE).list(&told).await?;
    let event = events.items.first().context("no event")?;
    ensure!(event.message.as_deref() == Some("original has a copy"), "{event:?}");
    ensure!(event.reporting_component.as_deref() == Some("copier"), "{event:?}");

    let original = maps.get("original").await?;
    ensure!(original.finalizers() == [FINALIZER], "{:?}", original.finalizers());
    maps.delete("original", &DeleteParams::foreground()).await?;
    until(maps, "original", conditions::is_deleted(&original.uid().unwrap_or_default())).await?;
    until(maps, "original-copy", conditions::is_deleted(&changed.uid().unwrap_or_default())).await?;
    ensure!(maps.get_opt("original-gone").await?.is_some(), "the finalizer left no note");
    Ok(())
}

async fn streams(client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let script = "echo started; echo welcome > /tmp/index.html; exec httpd -f -p 80 -h /tmp";
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": crate::BUSYBOX, "command": ["sh", "-c", script],
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1},
        }]},
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let is_ready = |pod: Option<&Pod>| {
        let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
    };
    until(&pods, "web", is_ready).await?;
    ensure!(pods.logs("web", &LogParams::default()).await? == "started\n", "log");

    let mut process =
        pods.exec("web", ["sh", "-c", "cat; exit 7"], &AttachParams::default().stdin(true)).await?;
    let (mut stdin, mut stdout) =
        (process.stdin().context("no stdin")?, process.stdout().context("no stdout")?);
    let status = process.take_status().context("no status")?;
    let sent = vec![b'x'; 200_000];
    let mut echoed = Vec::new();
    let sending = async {
        stdin.write_all(&sent).await?;
        stdin.shutdown().await
    };
    let (sending, receiving) = futures::future::join(sending, stdout.read_to_end(&mut echoed)).await;
    sending?;
    receiving?;
    ensure!(echoed == sent, "{} bytes of {}", echoed.len(), sent.len());
    let status = status.await.context("no status")?;
    ensure!(status.reason.as_deref() == Some("NonZeroExitCode"), "{status:?}");

    let mut forwarder = pods.portforward("web", &[80]).await?;
    let mut http = forwarder.take_stream(80).context("no stream")?;
    http.write_all(b"GET / HTTP/1.0\r\nHost: web\r\n\r\n").await?;
    let mut answer = String::new();
    http.read_to_string(&mut answer).await?;
    ensure!(answer.ends_with("welcome\n"), "{answer}");

    let uid = pods.get("web").await?.uid().unwrap_or_default();
    pods.evict("web", &EvictParams::default()).await?;
    until(&pods, "web", conditions::is_deleted(&uid)).await?;
    Ok(())
}
