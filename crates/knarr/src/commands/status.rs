//! `knarr status`: whether a cluster runs, what is on it, and what of it does not work.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use cli::args::{Output, StatusArgs};
use cli::status::{Node, Overview};
use http::Request;
use http_body_util::BodyExt;
use machinery::unserved::{UNSERVED, Unserved};
use serde_json::{Value, json};

use crate::async_runtime::AsyncRuntime;
use crate::commands::cluster::{self, Asked};
use crate::commands::{down, why};
use crate::components::{self, Settings, TunnelStanding};
use crate::layout::Layout;

/// What this host knows of a cluster in a folder.
struct Here {
    layout: Layout,
    settings: Settings,
    /// Only root may know it.
    pid: Option<i32>,
}

/// Prints the state; fails if the cluster does not run or is not ready.
pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let here = match cluster::folder(&args.cluster)? {
        Some(layout) => Some(here(layout, args.output)?),
        // A kubeconfig is asked for: what this host knows besides is welcome.
        None => cluster::here(&args.cluster).and_then(|layout| here(layout, args.output).ok()),
    };
    let runtime = AsyncRuntime::on_this_thread()?;
    if let Some(here) = &here
        && let Some(server) = here.settings.joined.clone()
    {
        return tell_of_agent(here, &server, args.output);
    }
    let (overview, checks) = runtime.block_on(async {
        let asked = cluster::find(&args.cluster).await?;
        overview(&asked, here.as_ref()).await
    })?;
    match args.output {
        Output::Json => print(&json_of(&overview, checks, here.as_ref())?)?,
        Output::Text => print(&cli::status::render(&overview, env!("CARGO_PKG_VERSION")))?,
    }
    if !overview.is_ready {
        let log = here.map(|here| format!("; its log is {}", here.layout.log().display()));
        bail!("the API server is not ready{}", log.unwrap_or_default());
    }
    Ok(())
}

/// Fails where nothing runs.
fn here(layout: Layout, output: Output) -> Result<Here> {
    let settings = Settings::load(&layout)?;
    let pid = match std::fs::File::open(layout.lock()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        _ => {
            let pid = down::running_pid(&layout)?;
            if pid.is_none() {
                if output == Output::Json {
                    print(&(json!({ "dataDir": layout.root(), "running": false }).to_string() + "\n"))?;
                }
                bail!("no cluster runs in {}; `knarr up` starts it", layout.root().display());
            }
            pid
        }
    };
    Ok(Here { layout, settings, pid })
}

/// A Node's folder says where its cluster is, not how to use it.
fn tell_of_agent(here: &Here, server: &str, output: Output) -> Result<()> {
    let Settings { node_name, node_ip, .. } = &here.settings;
    let all_ips = here.settings.node_ips().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let tunnels = components::tunnels(&here.layout);
    if output == Output::Json {
        let node = json!({ "name": node_name, "ip": node_ip });
        let told = |(server, standing): (&SocketAddr, &TunnelStanding)| json!({ "server": server, "stands": standing.broken.is_none(), "why": standing.broken });
        let tunnels: Vec<Value> = tunnels.iter().map(told).collect();
        let all = json!({
            "dataDir": here.layout.root(),
            "running": true,
            "pid": here.pid,
            "node": node,
            "server": server,
            "tunnels": tunnels,
        });
        return print(&(serde_json::to_string_pretty(&all)? + "\n"));
    }
    let told = |(server, standing): (&SocketAddr, &TunnelStanding)| match &standing.broken {
        None => format!("tunnel  to {server} stands\n"),
        Some(why) => format!("tunnel  to {server} does not stand: {why}\n"),
    };
    print(&format!(
        "knarr {}   Node {node_name} {all_ips} of the cluster at {server}\n{}use it  with a kubeconfig from there\n",
        env!("CARGO_PKG_VERSION"),
        tunnels.iter().map(told).collect::<String>()
    ))
}

/// Whoever reads may stop reading.
fn print(text: &str) -> Result<()> {
    match write!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

async fn overview(asked: &Asked, here: Option<&Here>) -> Result<(Overview, Vec<Value>)> {
    let (is_ready, text) = readiness(asked).await?;
    let checks = checks(&text);
    let failing =
        checks.iter().filter(|check| check["ok"] == false).filter_map(|check| check["name"].as_str());
    let mut overview =
        Overview { is_ready, failing: failing.map(ToOwned::to_owned).collect(), ..Overview::default() };
    let version = asked.get("/version").await?.unwrap_or_default();
    overview.kubernetes = version["gitVersion"].as_str().map(ToOwned::to_owned);
    if is_ready {
        look_around(asked, &mut overview).await?;
    }
    if let Some(here) = here {
        let processes = here.pid.map(processes_of).unwrap_or_default();
        overview.age = here.pid.and_then(age_of);
        let memory: Option<u64> = processes.iter().map(|pid| memory_of(*pid)).sum();
        overview.memory_bytes = memory.filter(|bytes| *bytes > 0);
        overview.store_bytes = size_of(&here.layout.db().join("data.mdb"));
        overview.bad_archives = here.layout.bad_archives();
        let admin = here.layout.admin_kubeconfig();
        overview.usage = format!("export KUBECONFIG={}", admin.display());
    }
    Ok((overview, checks))
}

async fn look_around(asked: &Asked, overview: &mut Overview) -> Result<()> {
    let text = |value: &Value, path: &str| {
        value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let is_true = |object: &Value, kind: &str| {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|found| found["type"] == kind && found["status"] == "True")
    };
    let tunnels = why::tunnels(asked).await;
    for node in why::list(asked, "/api/v1/nodes", "Node").await? {
        let name = text(&node, "/metadata/name");
        let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
        let internal = addresses.into_iter().flatten().find(|address| address["type"] == "InternalIP");
        let ip = internal.map(|address| text(address, "/address")).unwrap_or_default();
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        let bad =
            conditions.into_iter().flatten().filter(|it| it["type"] != "Ready" && it["status"] == "True");
        overview.nodes.push(Node {
            has_tunnel: tunnels.as_ref().map(|tunnels| tunnels.contains(&name)),
            name,
            ip,
            is_ready: is_true(&node, "Ready"),
            troubles: bad.map(|condition| text(condition, "/type")).collect(),
        });
    }
    for pod in why::list(asked, "/api/v1/pods", "Pod").await? {
        if is_true(&pod, "Ready") || pod.pointer("/status/phase").is_some_and(|phase| phase == "Succeeded") {
            overview.pods_well += 1;
        } else {
            let [namespace, name] = ["/metadata/namespace", "/metadata/name"].map(|path| text(&pod, path));
            overview.pods_ill.push(format!("{namespace}/{name}"));
        }
    }
    let objects = why::unserved(asked).await?;
    overview.unserved = UNSERVED.iter().filter_map(|row| waiting_for(row, &objects)).collect();
    Ok(())
}

/// How many objects wait for the part of a row.
fn waiting_for(
    row: &'static Unserved,
    objects: &[(Value, (String, String))],
) -> Option<(String, usize, &'static Unserved)> {
    let found = objects.iter().filter(|(_, (group, plural))| group == row.group && plural == row.resource);
    let count = found.count();
    (count > 0).then(|| (row.resource.to_owned(), count, row))
}

fn json_of(overview: &Overview, checks: Vec<Value>, here: Option<&Here>) -> Result<String> {
    let unserved = overview
        .unserved
        .iter()
        .map(|(resource, count, row)| json!({ "resource": resource, "objects": count, "part": row.part }));
    let nodes =
        overview.nodes.iter().map(|Node { name, ip, is_ready, troubles, has_tunnel }| {
            json!({ "name": name, "ip": ip, "ready": is_ready, "troubles": troubles, "tunnel": has_tunnel })
        });
    let bad_archives =
        overview.bad_archives.iter().map(|(file, error)| json!({ "file": file, "error": error }));
    let mut all = json!({
        "running": true,
        "ready": overview.is_ready,
        "checks": checks,
        "kubernetesVersion": overview.kubernetes,
        "nodes": nodes.collect::<Vec<_>>(),
        "podsReady": overview.pods_well,
        "podsNotReady": overview.pods_ill,
        "imagesNotImported": bad_archives.collect::<Vec<_>>(),
        "notInThisVersion": unserved.collect::<Vec<_>>(),
        "upSeconds": overview.age.map(|age| age.as_secs()),
        "memoryBytes": overview.memory_bytes,
        "storeBytes": overview.store_bytes,
    });
    if let Some(here) = here {
        all["dataDir"] = json!(here.layout.root());
        all["pid"] = json!(here.pid);
        all["node"] = json!({ "name": here.settings.node_name, "ip": here.settings.node_ip });
        all["kubeconfig"] = json!(here.layout.admin_kubeconfig());
    }
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// The lines of `/readyz?verbose`: `[+]ping ok`.
fn checks(text: &str) -> Vec<Value> {
    let line = |line: &str| {
        let (name, _) = line.get(3..)?.split_once(' ')?;
        let ok = match line.get(..3)? {
            "[+]" => true,
            "[-]" => false,
            _ => return None,
        };
        Some(json!({ "name": name, "ok": ok }))
    };
    text.lines().filter_map(line).collect()
}

async fn readiness(asked: &Asked) -> Result<(bool, String)> {
    let request = Request::get("/readyz?verbose").body(kube::client::Body::empty())?;
    let response = asked.client.send(request).await.map_err(|error| asked.explained(error))?;
    let ready = response.status().is_success();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((ready, String::from_utf8_lossy(&body).into_owned()))
}

/// The supervisor and its parts. Source: proc(5).
fn processes_of(pid: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    std::iter::once(pid).chain(children.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
}

/// Its share of memory, in bytes; `None` if this is not for us to know.
fn memory_of(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
}

/// Since when it runs: its folder in /proc is as old as it is.
fn age_of(pid: i32) -> Option<Duration> {
    std::fs::metadata(format!("/proc/{pid}")).ok()?.modified().ok()?.elapsed().ok()
}

fn size_of(file: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    // The file has holes.
    Some(std::fs::metadata(file).ok()?.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_from_the_verbose_answer() {
        let text = "[+]ping ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n";
        let expected = json!([{ "name": "ping", "ok": true }, { "name": "informer-sync", "ok": false }]);
        assert_eq!(Value::from(checks(text)), expected);
    }

    #[test]
    fn this_process_has_memory_and_an_age() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(processes_of(pid).contains(&pid));
        assert!(memory_of(pid).is_some_and(|bytes| bytes > 0) && age_of(pid).is_some());
    }
}
