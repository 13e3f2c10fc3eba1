//! Acts on a running container: exec, HTTP and TCP, for hooks and probes; and the way to stop it.

mod error;
mod grpc;
mod http;

use std::collections::BTreeSet;
use std::time::Duration;

use controller::EventType;
use cri::{CriError, v1};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::watch;

use crate::context::Context;
use crate::metrics::{Count, KubeletMetrics};
pub(crate) use error::{DialError, HookError, HttpError};
pub(crate) use grpc::check as grpc_check;
pub(crate) use http::{Answer, HttpCall, call as http_call};

use error::{HttpHookError, PortError};

/// A container is given that long at least, however little its Pod has. Source: `minimumGracePeriodInSeconds`.
const GRACE_MIN: i64 = 2;
/// How long a hook waits for an answer over HTTP.
const HTTP_HOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// What a hook or probe is aimed at.
pub(crate) struct Target<'a> {
    pub(crate) container_id: &'a str,
    pub(crate) spec: &'a Container,
    pub(crate) ips: &'a [String],
}

impl Target<'_> {
    /// The host to connect to: the handler's own, or the Pod's address.
    pub(crate) fn host(&self, own: Option<&str>) -> String {
        let own = own.filter(|host| !host.is_empty()).map(str::to_owned);
        own.or_else(|| self.ips.first().cloned()).unwrap_or_else(|| "127.0.0.1".into())
    }

    /// A port by number, or by its name in the container.
    pub(crate) fn port(&self, port: &IntOrString) -> Result<u16, PortError> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut ports = self.spec.ports.iter().flatten();
                let named = ports.find(|p| p.name.as_deref() == Some(name)).map(|p| p.container_port);
                let number = named.or_else(|| name.parse().ok());
                number.ok_or_else(|| PortError::Unknown(name.clone()))?
            }
        };
        let valid = u16::try_from(number).ok().filter(|port| *port > 0);
        valid.ok_or(PortError::OutOfRange(number))
    }
}

/// Runs a lifecycle hook to its end.
///
/// # Errors
/// How it failed.
pub(crate) async fn run_hook(
    context: &Context,
    pod: &Pod,
    target: &Target<'_>,
    hook: &LifecycleHandler,
) -> Result<(), HookError> {
    let (name, namespace, uid) = crate::pod::identity::identity(pod);
    let place = format!("for Container {:?} in Pod \"{name}_{namespace}({uid})\" failed", target.spec.name);
    if let Some(exec) = &hook.exec {
        let command = exec.command.clone().unwrap_or_default();
        let ran = exec_in(context, target.container_id, command.clone(), 0).await;
        let (error, output) = match ran {
            Ok(ran) if ran.exit_code == 0 => return Ok(()),
            Ok(ran) => {
                let stderr = String::from_utf8_lossy(&ran.stderr);
                let error =
                    format!("command '{}' exited with {}: {stderr}", command.join(" "), ran.exit_code);
                (error, both(&ran))
            }
            Err(error) => (error.to_string(), String::new()),
        };
        return Err(HookError::Exec { command: command.join(" "), place, error, output });
    }
    if let Some(get) = &hook.http_get {
        let called = match HttpCall::of(target, get) {
            Ok(call) => http::call_hook(&call, HTTP_HOOK_TIMEOUT).await.map_err(HttpHookError::from),
            Err(error) => Err(error.into()),
        };
        if let Ok(Some(host)) = &called {
            let text = format!(
                "request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded"
            );
            context.event(pod, None, EventType::Warning, "LifecycleHTTPFallback", text);
            context.metrics.count(Count::HookHttpFallbacks, &[]);
        }
        let path = get.path.clone().unwrap_or_default();
        return called.map(drop).map_err(|source| HookError::Http { path, place, source });
    }
    if let Some(sleep) = &hook.sleep {
        let mut sleeping = Sleeping { metrics: &context.metrics, is_over: false };
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        sleeping.is_over = true;
        return Ok(());
    }
    Err(HookError::Invalid)
}

/// A hook that sleeps: whoever ends it before its time drops this.
struct Sleeping<'a> {
    metrics: &'a KubeletMetrics,
    is_over: bool,
}

impl Drop for Sleeping<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.metrics.count(Count::HookSleepsEnded, &[]);
        }
    }
}

/// A host and its port as one text, as Go joins them.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Runs a command in a container. `timeout` in seconds, 0 for none.
pub(crate) async fn exec_in(
    context: &Context,
    container_id: &str,
    cmd: Vec<String>,
    timeout: i64,
) -> Result<v1::ExecSyncResponse, CriError> {
    let request = v1::ExecSyncRequest { container_id: container_id.to_owned(), cmd, timeout };
    context.runtime.exec_sync(request).await
}

/// All that a command has said.
pub(crate) fn both(ran: &v1::ExecSyncResponse) -> String {
    String::from_utf8_lossy(&[ran.stdout.as_slice(), &ran.stderr].concat()).into_owned()
}

/// A container that is to end.
pub(crate) struct Kill {
    /// The runtime's id.
    pub(crate) id: String,
    /// Its name in the spec.
    pub(crate) name: String,
    /// Seconds for all of it: hook, turn and end.
    pub(crate) grace: i64,
    /// For the event.
    pub(crate) message: String,
    /// The Pod's addresses.
    pub(crate) ips: Vec<String>,
    /// `None` for one that waits for nobody.
    pub(crate) turn: Option<Turn>,
}

/// When a container's turn to end is.
pub(crate) struct Turn {
    /// Ids of those that end before it.
    pub(crate) after: Vec<String>,
    /// Ids of those of its Pod that run.
    pub(crate) running: watch::Receiver<BTreeSet<String>>,
}

impl Turn {
    /// Waits until none of `ids` runs. One whose worker is gone waits for nothing.
    async fn until_ended(running: &watch::Receiver<BTreeSet<String>>, ids: &[String]) {
        let have_ended = |running: &BTreeSet<String>| ids.iter().all(|id| !running.contains(id));
        if running.clone().wait_for(have_ended).await.is_err() {
            tracing::debug!("a pod's worker went while a container waited for its turn");
        }
    }
}

/// Runs the `preStop` hook, waits for the container's turn and stops it. Source: `killContainer` of upstream's
/// `pkg/kubelet/kuberuntime`. Gives what the runtime says of it afterwards.
///
/// # Errors
/// The runtime does not stop it, or has forgotten it.
pub(crate) async fn kill_container(
    context: &Context,
    pod: &Pod,
    kill: Kill,
) -> Result<Option<v1::ContainerStatus>, CriError> {
    let Kill { id, name, grace, message, ips, turn } = kill;
    context.event(pod, Some(&name), EventType::Normal, "Killing", message);
    let start = tokio::time::Instant::now();
    let end = start + Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    let spec = pod.spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let spec = spec.into_iter().find(|c| c.name == name);
    let hook = spec.and_then(|c| Some((c, c.lifecycle.as_ref()?.pre_stop.as_ref()?)));
    if let Some((spec, hook)) = hook.filter(|_| grace > 0) {
        let target = Target { container_id: &id, spec, ips: &ips };
        // Others end with the container by themselves; a sleep that goes on would hold the Pod up.
        let ended = async {
            match turn.as_ref().filter(|_| hook.sleep.is_some()) {
                Some(turn) => Turn::until_ended(&turn.running, std::slice::from_ref(&id)).await,
                None => std::future::pending().await,
            }
        };
        let ran = tokio::select! {
            ran = tokio::time::timeout_at(end, run_hook(context, pod, &target, hook)) => ran.unwrap_or(Ok(())),
            () = ended => Ok(()),
        };
        if let Err(error) = ran {
            tracing::debug!(pod = pod.metadata.uid, container = name, %error, "a preStop hook failed");
            let text = "PreStopHook failed".to_owned();
            context.event(pod, Some(&name), EventType::Warning, "FailedPreStopHook", text);
        }
    }
    if let Some(turn) = turn
        && tokio::time::timeout_at(end, Turn::until_ended(&turn.running, &turn.after)).await.is_err()
    {
        tracing::debug!(pod = pod.metadata.uid, container = name, "there was no time to wait for others");
    }
    let spent = i64::try_from(start.elapsed().as_secs()).unwrap_or(i64::MAX);
    let timeout = grace.saturating_sub(spent).max(GRACE_MIN);
    let request = v1::StopContainerRequest { container_id: id.clone(), timeout };
    match context.operation("stop_container", context.runtime.stop_container(request)).await {
        Ok(_) | Err(CriError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    let request = v1::ContainerStatusRequest { container_id: id, verbose: false };
    Ok(context.runtime.container_status(request).await?.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fail_in_upstreams_words() {
        let refused = std::io::Error::from_raw_os_error(nix::libc::ECONNREFUSED);
        assert_eq!(
            DialError { host: "10.42.0.2".to_owned(), port: 80, error: refused }.to_string(),
            "dial tcp 10.42.0.2:80: connect: connection refused"
        );
        let unreachable = std::io::Error::from_raw_os_error(nix::libc::EHOSTUNREACH);
        assert_eq!(
            DialError { host: "fd00::2".to_owned(), port: 80, error: unreachable }.to_string(),
            "dial tcp [fd00::2]:80: connect: no route to host"
        );
    }
}
