//! Whether the parts of a cluster that runs are well, and read all that there is: asked of the API server.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use super::{Finding, Subject};
use crate::async_runtime::AsyncRuntime;
use crate::kube_client;

/// How long the API server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Objects that are named.
const NAMED_MAX: usize = 3;

/// One line for the checks that fail and the objects that cannot be decoded.
pub(super) fn look(subject: &Subject<'_>) -> Finding {
    let kubeconfig = subject.layout.admin_kubeconfig();
    if !subject.is_running || !kubeconfig.exists() {
        return Finding::Fine("not looked at: no API server runs here".into());
    }
    let node = subject.args.node_name.clone().or_else(|| crate::host::node_name().ok()).unwrap_or_default();
    let asked = AsyncRuntime::on_this_thread().map_err(Into::into);
    let asked = asked.and_then(|runtime| {
        runtime.block_on(async {
            let client = kube_client::client(&kubeconfig, "knarr").await?;
            tokio::time::timeout(ANSWER_MAX, ask(&client, &node))
                .await
                .context("there was no answer in time")?
        })
    });
    match asked {
        Ok(answers) => judge(&answers),
        Err(error) => Finding::warning(
            format!("the API server cannot be asked: {error:#}"),
            "see `knarr status`, and the log",
        ),
    }
}

/// What the API server, the kubelet and the Events say.
struct Answers {
    health: Vec<String>,
    events: Value,
}

async fn ask(client: &kube::Client, node: &str) -> Result<Answers> {
    let (_, ready) = get(client, "/readyz?verbose").await?;
    let (status, kubelet) = get(client, &format!("/api/v1/nodes/{node}/proxy/healthz?verbose")).await?;
    let (_, events) = get(client, "/api/v1/events?fieldSelector=reason%3DFailedDecoding").await?;
    // A host without a kubelet has nothing to say.
    let is_kubelets = status.is_success() || status == StatusCode::INTERNAL_SERVER_ERROR;
    let health = if is_kubelets { vec![ready, kubelet] } else { vec![ready] };
    Ok(Answers { health, events: serde_json::from_str(&events).unwrap_or_default() })
}

async fn get(client: &kube::Client, path: &str) -> Result<(StatusCode, String)> {
    let answer = client.send(Request::get(path).body(kube::client::Body::empty())?).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn judge(answers: &Answers) -> Finding {
    let lines = answers.health.iter().flat_map(|text| text.lines());
    let failed: Vec<&str> = lines.filter_map(|line| line.strip_prefix("[-]")).collect();
    if !failed.is_empty() {
        return Finding::warning(failed.join("; "), "see what the log says at warn level");
    }
    let events = answers.events["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let object = |event: &Value| {
        let [kind, namespace, name] = ["kind", "namespace", "name"]
            .map(|field| event["involvedObject"][field].as_str().unwrap_or_default());
        let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
        format!("{}/{name}{place}", kind.to_lowercase())
    };
    let mut objects: Vec<String> = events.iter().map(object).collect();
    objects.sort();
    objects.dedup();
    if objects.is_empty() {
        return Finding::Fine("are well, and read every object".into());
    }
    let more = objects.len().saturating_sub(NAMED_MAX);
    objects.truncate(NAMED_MAX);
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    Finding::warning(
        format!("objects could not be decoded in the last hour: {}{others}", objects.join(", ")),
        "`kubectl describe` shows the event FailedDecoding with its cause; a version without it is read",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(health: &[&str], objects: &[(&str, &str, &str)], expect: &str) {
        let event = |(kind, namespace, name): &(&str, &str, &str)| json!({"involvedObject": {"kind": kind, "namespace": namespace, "name": name}});
        let events = json!({ "items": objects.iter().map(event).collect::<Vec<_>>() });
        let health = health.iter().map(|text| (*text).to_owned()).collect();
        let what = match judge(&Answers { health, events }) {
            Finding::Fine(what) | Finding::Warning { what, .. } | Finding::Failure { what, .. } => what,
        };
        assert_eq!(what, expect);
    }

    #[test]
    fn checks_that_fail_come_before_objects_that_cannot_be_read() {
        let well = "[+]ping ok\n[+]informer-sync/kube-scheduler ok\nreadyz check passed\n";
        let ill =
            "[+]ping ok\n[-]informer-sync/kubelet failed: pods not followed for 40 s\nhealthz check failed\n";
        let service = ("Service", "shop", "web");
        check(&[well], &[], "are well, and read every object");
        check(&[well, ill], &[service], "informer-sync/kubelet failed: pods not followed for 40 s");
        check(
            &[well],
            &[service, ("Node", "", "n1"), service, ("Pod", "a", "b"), ("Pod", "a", "c")],
            "objects could not be decoded in the last hour: node/n1, pod/b -n a, pod/c -n a and 1 more",
        );
    }
}
