//! The CIS Kubernetes benchmark (v1.10) on a cluster of this host, as rows for `doctor --cis`.
//!
//! A row is a pure function of what was found ([`state`]). What one process does that upstream's many do is judged by what
//! the check is for, not by the flag it names; what cannot be otherwise, because there is nothing to set, passes by
//! construction, and says so. Whoever has to decide is told so with a warning; `docs/security.md` says why.

mod rows;
mod state;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use cli::args::{Part, ServerArgs};

use crate::components::{self, CONTROL_PLANE_UID};
use crate::layout::Layout;

/// What a check comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As the benchmark wants it; why.
    Pass(String),
    /// As the benchmark wants it, and nobody can set it otherwise; why.
    Built(String),
    /// It is for an administrator to decide, and why it is as it is.
    Warn(String),
    /// Not as the benchmark wants it, by what somebody has set.
    Fail(String),
    /// There is nothing here that it is about; why.
    NotApplicable(String),
}

/// One check of the benchmark.
pub(crate) struct Row {
    /// The benchmark's number.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    look: fn(&Facts) -> Verdict,
}

/// Owner and mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    uid: u32,
    mode: u32,
}

/// What the rows are about.
pub(crate) struct Facts {
    args: ServerArgs,
    /// Below the data directory, those that are there.
    files: BTreeMap<&'static str, Mode>,
    /// The admission plugins that run; what is wrong with the flags.
    plugins: Result<Vec<&'static str>>,
    /// What the kubelet is told; `None` where none runs.
    kubelet: Option<Result<Kubelet>>,
    /// The certificates below the data directory that are there.
    certificates: BTreeMap<&'static str, state::Certificate>,
    /// Now, in Unix seconds.
    now_second: i64,
    /// Where anything on this host takes connections.
    listening: Vec<SocketAddr>,
    /// What this program speaks over TLS.
    ciphers: Vec<String>,
    /// The provider that encrypts new Secrets, if any does; `None` where no configuration is there yet.
    encrypts: Option<Result<Option<&'static str>>>,
    /// Whether the audit policy has anything logged.
    audits: Result<bool>,
    /// The configurations of a network that is not the built-in one.
    networks: Vec<(String, Mode)>,
}

/// What the kubelet is told.
#[derive(Clone, Debug, PartialEq)]
struct Kubelet {
    pod_pids_limit: i64,
    seccomp_default: bool,
    streams_end: bool,
    /// The KubeletConfiguration with everything filled in.
    config: serde_json::Value,
}

/// Files of the supervisor and of the Node, which are root's, and secret.
const OF_ROOT: [&str; 4] =
    ["admin.kubeconfig", "agent/kubelet.kubeconfig", "agent/kube-proxy.kubeconfig", "config.json"];
/// Files of the control plane's, and secret.
const OF_CONTROL_PLANE: [&str; 7] = [
    "server/tls/ca.key",
    "server/tls/apiserver.key",
    "server/tls/apiserver-kubelet-client.key",
    "server/tls/service-account.key",
    "server/cred/encryption-config.yaml",
    "server/db/data.mdb",
    "server/logs/audit.log",
];
/// Certificates, which are not secret.
const CERTIFICATES: [&str; 7] = [
    TO_KUBELETS,
    OF_CLIENTS,
    "server/tls/apiserver.crt",
    "server/tls/ca.crt",
    "agent/tls/ca.crt",
    "agent/tls/kubelet.crt",
    "agent/tls/kubelet-server.crt",
];
/// The API server's own at kubelets.
const TO_KUBELETS: &str = "server/tls/apiserver-kubelet-client.crt";
/// The authority of those whom the kubelet knows by a certificate.
const OF_CLIENTS: &str = "agent/tls/client-ca.crt";
/// And the rest that is looked at.
const OTHERS: [&str; 5] =
    ["server", "server/db", "agent", "agent/tls/kubelet.key", "agent/tls/kubelet-server.key"];

impl Facts {
    /// Looks at the cluster in `layout`, which was started with `args`, or would be.
    pub(crate) fn of(args: &ServerArgs, layout: &Layout) -> Self {
        let all = OF_ROOT.iter().chain(&OF_CONTROL_PLANE).chain(&CERTIFICATES).chain(&OTHERS);
        let mode = |path: &&'static str| {
            let is = layout.root().join(path).symlink_metadata().ok()?;
            Some((*path, Mode { uid: is.uid(), mode: is.mode() & 0o7777 }))
        };
        let api = &args.api_server;
        let plugins =
            apiserver::admission::chosen(&api.enable_admission_plugins, &api.disable_admission_plugins);
        Self {
            args: args.clone(),
            files: all.filter_map(mode).collect(),
            plugins: plugins
                .map(|plugins| apiserver::admission::running(&plugins).collect())
                .map_err(anyhow::Error::msg),
            kubelet: args.runs(Part::Kubelet).then(|| kubelet(args, layout)),
            certificates: state::certificates(layout),
            now_second: jiff::Timestamp::now().as_second(),
            listening: state::listening(),
            ciphers: state::ciphers(),
            encrypts: state::encrypts(args, layout),
            audits: state::audits(args),
            networks: state::networks(args),
        }
    }

    /// Passes if a certificate that is there has not ended.
    fn lasts(&self, files: &[&str]) -> Verdict {
        let there: Vec<_> =
            files.iter().filter_map(|file| Some((file, self.certificates.get(file)?))).collect();
        let ended = there.iter().find(|(_, certificate)| certificate.ends_second <= self.now_second);
        match (ended, there.is_empty()) {
            (Some((file, _)), _) => Verdict::Fail(format!("{file} has ended")),
            (None, true) => Verdict::NotApplicable("none is there yet".to_owned()),
            (None, false) => Verdict::Pass("none has ended; they are renewed before they do".to_owned()),
        }
    }

    /// Passes if nothing takes connections from other hosts at these ports.
    fn closed(&self, ports: &[u16]) -> Verdict {
        let is_open = |at: &&SocketAddr| ports.contains(&at.port()) && !at.ip().is_loopback();
        match self.listening.iter().find(is_open) {
            Some(at) => Verdict::Fail(format!("something listens at {at}")),
            None => Verdict::Pass(format!("nothing listens at {ports:?} but on loopback")),
        }
    }

    /// Passes if all of the files that are there are a user's, with none but these rights.
    fn kept(&self, files: &[&str], uid: u32, most: u32) -> Verdict {
        let there = files.iter().filter_map(|file| Some((*file, *self.files.get(file)?)));
        let (mut seen, mut wrong) = (0, Vec::new());
        for (file, is) in there {
            seen += 1;
            if is.uid != uid || is.mode & !most != 0 {
                wrong.push(format!("{file} is {:04o} of user {}", is.mode, is.uid));
            }
        }
        match (wrong.as_slice(), seen) {
            ([], 0) => Verdict::NotApplicable("none is there yet".to_owned()),
            ([], _) => Verdict::Pass(format!("{most:03o} at most, of user {uid}")),
            _ => Verdict::Fail(wrong.join(", ")),
        }
    }

    fn runs_plugin(&self, name: &str) -> Result<bool, Verdict> {
        match &self.plugins {
            Ok(plugins) => Ok(plugins.contains(&name)),
            Err(why) => Err(Verdict::Fail(format!("{why:#}"))),
        }
    }

    fn of_kubelet(&self, judge: impl Fn(&Kubelet) -> Verdict) -> Verdict {
        match &self.kubelet {
            None => Verdict::NotApplicable("no kubelet runs here".to_owned()),
            Some(Err(why)) => Verdict::Fail(format!("{why:#}")),
            Some(Ok(kubelet)) => judge(kubelet),
        }
    }
}

fn kubelet(args: &ServerArgs, layout: &Layout) -> Result<Kubelet> {
    let config = components::kubelet_of_node(kubelet::Config::default(), layout, &args.kubelet_arg)?;
    Ok(Kubelet {
        pod_pids_limit: config.pod_pids_limit,
        seccomp_default: config.seccomp_default,
        streams_end: !config.streaming_connection_idle_timeout.is_zero(),
        config: config.configz,
    })
}

/// All checks, in the benchmark's order.
pub(crate) fn judge(facts: &Facts) -> Vec<(&'static Row, Verdict)> {
    rows::ROWS.iter().map(|row| (row, (row.look)(facts))).collect()
}

#[cfg(test)]
mod tests;
