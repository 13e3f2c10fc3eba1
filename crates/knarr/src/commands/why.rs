//! `knarr why`: fetches an object and what surrounds it, or everything, and prints why it is not running.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use cli::args::{Output, WhyArgs, object};
use cli::usage_error::UsageError;
use cli::why::{Decision, KINDS, Kind, Reach, Snapshot};
use jiff::Timestamp;
use machinery::unserved::UNSERVED;
use serde::Serialize;
use serde_json::Value;

use crate::async_runtime::AsyncRuntime;
use crate::commands::cluster::{self, Asked};
use crate::commands::trace;

/// Discovery in one document. Source: `apidiscovery.k8s.io/v2`.
const DISCOVERY: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// How long a kubelet may take to say how it is.
const KUBELET_MAX: Duration = Duration::from_secs(5);

/// A resource as discovery tells of it.
struct Resource {
    group: String,
    version: String,
    plural: String,
    singular: String,
    kind: String,
    short_names: Vec<String>,
    is_namespaced: bool,
}

/// Objects with what the API calls them: group and plural.
type Objects = Vec<(Value, (String, String))>;

/// Prints the reasons; fails if the object is not there.
pub(crate) fn run(args: &WhyArgs) -> Result<()> {
    let asked = object(&args.object)?;
    let runtime = AsyncRuntime::on_this_thread()?;
    let is_well = runtime.block_on(async {
        let cluster = cluster::find(&args.cluster).await?;
        match asked {
            Some((kind, name)) => {
                let namespace = args.namespace.as_ref().unwrap_or(&cluster.namespace);
                let snapshot = snapshot(&cluster, kind, namespace, name).await?;
                let answer = cli::why::explain(&snapshot);
                print(args.output, &answer, &answer.render(cli::screen::width()))?;
                anyhow::Ok(answer.running)
            }
            None => {
                let (objects, events) = everything(&cluster, args.namespace.as_deref()).await?;
                let mut found = cli::why::everything(&objects, &events, Timestamp::now());
                let here = cluster::here(&args.cluster);
                found.not_imported(here.map(|layout| layout.bad_archives()).unwrap_or_default());
                print(args.output, &found, &found.render(cli::screen::width()))?;
                anyhow::Ok(found.wrong.is_empty())
            }
        }
    })?;
    if args.exit_code && !is_well {
        bail!("something is wrong, as --exit-code asks to be told");
    }
    Ok(())
}

/// Whoever reads may stop reading.
fn print(output: Output, value: &impl Serialize, text: &str) -> Result<()> {
    let printed = match output {
        Output::Json => writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(value)?),
        Output::Text => write!(std::io::stdout(), "{text}"),
    };
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

async fn snapshot(cluster: &Asked, kind: &str, namespace: &str, name: &str) -> Result<Snapshot> {
    let resource = find(cluster, kind).await?;
    let namespace = if resource.kind == "Namespace" { name } else { namespace };
    let place = if resource.is_namespaced { format!("namespaces/{namespace}/") } else { String::new() };
    let path = format!("{}/{place}{}/{name}", prefix(&resource), resource.plural);
    let Some(mut subject) = cluster.get(&path).await? else {
        let place = if resource.is_namespaced { format!(" in namespace {namespace}") } else { String::new() };
        bail!(
            "there is no {}/{name}{place}; `kubectl get {} -A` lists them",
            resource.singular,
            resource.plural
        )
    };
    subject["kind"] = resource.kind.as_str().into();
    let mut others = Vec::new();
    for other in KINDS {
        others.extend(list(cluster, &other.path(namespace), other.name).await?);
    }
    let events = list(cluster, &format!("/api/v1/namespaces/{namespace}/events"), "Event").await?;
    let placed = list(cluster, "/api/v1/pods?fieldSelector=spec.nodeName!%3D", "Pod").await?;
    let decision = if resource.kind == "Pod" { decision(cluster, namespace, name).await } else { None };
    let reach = if resource.kind == "Node" { Some(reach(cluster, name).await) } else { None };
    let resource = (resource.group, resource.plural);
    Ok(Snapshot { subject, resource, others, placed, events, now: Timestamp::now(), decision, reach })
}

/// Whether the API server reaches a Node's kubelet; only what whoever asks may know.
async fn reach(cluster: &Asked, node: &str) -> Reach {
    let has_tunnel = tunnels(cluster).await.map(|all| all.contains(node));
    let request = http::Request::get(format!("/api/v1/nodes/{node}/proxy/healthz")).body(Vec::new());
    let Ok(request) = request else { return Reach { has_tunnel, failure: None } };
    let failure = match tokio::time::timeout(KUBELET_MAX, cluster.client.request_text(request)).await {
        Ok(Err(kube::Error::Api(status))) if status.code >= 500 => Some(status.message.clone()),
        // Whatever else is answered comes from the kubelet, or is about rights.
        Ok(_) => None,
        Err(_) => Some(format!("it has not answered within {} s", KUBELET_MAX.as_secs())),
    };
    Reach { has_tunnel, failure }
}

/// The Nodes whose tunnels to the API server stand; nothing where whoever asks may not know.
pub(crate) async fn tunnels(cluster: &Asked) -> Option<BTreeSet<String>> {
    let told = cluster.get(tunnel::LIST_PATH).await.ok()??;
    Some(array(&told, "/tunnels").iter().map(|one| string(one, "/node")).collect())
}

/// What the scheduler last decided about a Pod. Nothing where nobody remembers it, or not for who asks.
async fn decision(cluster: &Asked, namespace: &str, name: &str) -> Option<Decision> {
    let chain = trace::fetch(cluster, "pods", namespace, name).await.ok()?;
    Decision::last(&chain, namespace, name, base::Clock::system().now().as_microsecond())
}

/// All that may be wrong, in one namespace or in all, with the Events.
async fn everything(cluster: &Asked, namespace: Option<&str>) -> Result<(Objects, Vec<Value>)> {
    let is_asked_for = |object: &Value| {
        let found = object.pointer("/metadata/namespace").and_then(Value::as_str);
        namespace.is_none_or(|namespace| found.is_none_or(|found| found == namespace))
    };
    let mut objects = Objects::new();
    for kind in KINDS {
        let found = list(cluster, &kind.path_of_all(), kind.name).await?;
        objects.extend(found.into_iter().filter(is_asked_for).map(|object| (object, kind.resource())));
    }
    let namespaces = list(cluster, "/api/v1/namespaces", "Namespace").await?;
    let resource = || (String::new(), "namespaces".to_owned());
    objects.extend(namespaces.into_iter().map(|object| (object, resource())));
    for (object, resource) in unserved(cluster).await? {
        if is_asked_for(&object) && !KINDS.iter().any(|kind| kind.resource() == resource) {
            objects.push((object, resource));
        }
    }
    Ok((objects, list(cluster, "/api/v1/events", "Event").await?))
}

/// Objects of the kinds on which no part acts.
pub(crate) async fn unserved(cluster: &Asked) -> Result<Objects> {
    let resources = discovered(cluster).await?;
    let mut objects = Objects::new();
    for row in UNSERVED {
        let is_it = |found: &&Resource| found.group == row.group && found.plural == row.resource;
        let Some(resource) = resources.iter().find(is_it) else { continue };
        let path = format!("{}/{}", prefix(resource), resource.plural);
        let found = list(cluster, &path, &resource.kind).await?;
        let name = || (row.group.to_owned(), row.resource.to_owned());
        objects.extend(found.into_iter().map(|object| (object, name())));
    }
    Ok(objects)
}

/// The objects of a list; none if there is no such resource.
pub(crate) async fn list(cluster: &Asked, path: &str, kind: &str) -> Result<Vec<Value>> {
    let list = cluster.get(path).await?.unwrap_or_default();
    let mut items = list.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default();
    for item in &mut items {
        item["kind"] = kind.into();
    }
    Ok(items)
}

fn prefix(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

/// The resource of a name that kubectl takes.
async fn find(cluster: &Asked, kind: &str) -> Result<Resource> {
    if let Some(known) = Kind::find(kind) {
        let (group, plural) = known.resource();
        return Ok(Resource {
            group,
            version: known.version().to_owned(),
            plural,
            singular: known.singular.to_owned(),
            kind: known.name.to_owned(),
            short_names: Vec::new(),
            is_namespaced: known.name != "Node",
        });
    }
    let asked = kind.to_lowercase();
    let (name, group) =
        asked.split_once('.').map_or((asked.as_str(), None), |(name, group)| (name, Some(group)));
    let is_it = |resource: &Resource| {
        let names = [&resource.plural, &resource.singular, &resource.kind.to_lowercase()];
        let is_named =
            names.into_iter().any(|other| other == name) || resource.short_names.iter().any(|it| it == name);
        is_named && group.is_none_or(|group| resource.group == group)
    };
    match discovered(cluster).await?.into_iter().find(is_it) {
        Some(resource) => Ok(resource),
        None => {
            let wrong = format!("there is no kind {kind:?}; `kubectl api-resources` lists them");
            Err(UsageError(wrong).into())
        }
    }
}

/// All resources, those of the preferred version of each group.
async fn discovered(cluster: &Asked) -> Result<Vec<Resource>> {
    let mut resources: BTreeMap<(String, String), Resource> = BTreeMap::new();
    for path in ["/api", "/apis"] {
        let document = cluster.get_as(path, DISCOVERY).await?.unwrap_or_default();
        for group in array(&document, "/items") {
            let name = string(group, "/metadata/name");
            for version in array(group, "/versions") {
                for resource in array(version, "/resources") {
                    let resource = resource_of(&name, version, resource);
                    let key = (resource.group.clone(), resource.plural.clone());
                    resources.entry(key).or_insert(resource);
                }
            }
        }
    }
    Ok(resources.into_values().collect())
}

fn resource_of(group: &str, version: &Value, resource: &Value) -> Resource {
    let short = array(resource, "/shortNames").iter().filter_map(Value::as_str);
    Resource {
        group: group.to_owned(),
        version: string(version, "/version"),
        plural: string(resource, "/resource"),
        singular: string(resource, "/singularResource"),
        kind: string(resource, "/responseKind/kind"),
        short_names: short.map(ToOwned::to_owned).collect(),
        is_namespaced: string(resource, "/scope") == "Namespaced",
    }
}

fn array<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn string(value: &Value, path: &str) -> String {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}
