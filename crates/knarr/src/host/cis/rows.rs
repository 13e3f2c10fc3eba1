//! The rows, in the benchmark's order.

use super::Verdict::{Fail, NotApplicable, Pass, Warn};
use super::{CONTROL_PLANE_UID, Facts, OF_CONTROL_PLANE, OF_ROOT, Row, Verdict};

const fn row(id: &'static str, title: &'static str, look: fn(&Facts) -> Verdict) -> Row {
    Row { id, title, look }
}

fn pass(why: &str) -> Verdict {
    Pass(why.to_owned())
}

fn warn(why: &str) -> Verdict {
    Warn(why.to_owned())
}

fn none(why: &str) -> Verdict {
    NotApplicable(why.to_owned())
}

/// All of them.
pub(super) const ROWS: &[Row] = &[
    row("1.1.1-8", "files that static Pods of the control plane are made from", |_| {
        none("the control plane is one process, no Pod")
    }),
    row("1.1.9-10", "network plugins' files", |_| {
        none("the network is built in; --cni-conf-dir's are yours")
    }),
    row("1.1.11", "etcd's folder is 700", |facts| facts.kept(&["server"], CONTROL_PLANE_UID, 0o700)),
    row("1.1.12", "etcd's folder has an owner of its own", |facts| {
        facts.kept(&["server/db/data.mdb"], CONTROL_PLANE_UID, 0o600)
    }),
    row("1.1.13-18", "kubeconfigs are 600 and root's", |facts| facts.kept(&OF_ROOT[..3], 0, 0o600)),
    row("1.1.19-20", "certificates are 644 at most", |facts| {
        facts.kept(&["server/tls/ca.crt"], CONTROL_PLANE_UID, 0o644)
    }),
    row("1.1.21", "keys are 600", |facts| facts.kept(&OF_CONTROL_PLANE, CONTROL_PLANE_UID, 0o600)),
    row("1.2.1", "--anonymous-auth is false", |facts| {
        if !facts.args.api_server.anonymous_auth {
            return pass("off");
        }
        warn(
            "on, as upstream, so that health checks need no credentials; RBAC gives anonymous users nothing else",
        )
    }),
    row("1.2.2", "--token-auth-file is not set", |_| pass("there is no such flag")),
    row("1.2.3", "DenyServiceExternalIPs is set", |facts| plugin(facts, "DenyServiceExternalIPs", Fail)),
    row("1.2.4-5", "kubelets are met with certificates, and theirs verified", |_| pass("always")),
    row("1.2.6-8", "--authorization-mode is Node,RBAC", |_| pass("always")),
    row("1.2.9", "EventRateLimit is set", |facts| plugin(facts, "EventRateLimit", Warn)),
    row("1.2.10", "AlwaysAdmit is not set", |_| pass("there is no such plugin")),
    row("1.2.11", "AlwaysPullImages is set", |facts| plugin(facts, "AlwaysPullImages", Warn)),
    row("1.2.12", "ServiceAccount is set", |facts| plugin(facts, "ServiceAccount", Fail)),
    row("1.2.13", "NamespaceLifecycle is set", |facts| plugin(facts, "NamespaceLifecycle", Fail)),
    row("1.2.14", "NodeRestriction is set", |facts| plugin(facts, "NodeRestriction", Fail)),
    row("1.2.15", "--profiling is false", |_| pass("there is no profiling")),
    row("1.2.16", "--audit-log-path is set", audit_path),
    row("1.2.17", "--audit-log-maxage is 30 or more", |facts| {
        at_least(u64::from(facts.args.api_server.audit_log_maxage), 30)
    }),
    row("1.2.18", "--audit-log-maxbackup is 10 or more", |facts| {
        at_least(facts.args.api_server.audit_log_maxbackup as u64, 10)
    }),
    row("1.2.19", "--audit-log-maxsize is 100 or more", |facts| {
        at_least(facts.args.api_server.audit_log_maxsize, 100)
    }),
    row("1.2.20", "--request-timeout is set", |facts| {
        match facts.args.api_server.request_timeout.0.as_secs() {
            0 => Fail("there is none".to_owned()),
            seconds => Pass(format!("{seconds} s")),
        }
    }),
    row("1.2.21", "--service-account-lookup is true", |_| pass("always")),
    row("1.2.22", "--service-account-key-file is set", |_| pass("a key of the cluster's own")),
    row("1.2.23-26", "etcd is met with certificates, clients too", etcd),
    row("1.2.27-28", "Secrets are encrypted in the store", |facts| {
        match facts.args.api_server.encryption_provider_config {
            None => pass("secretbox, under a key of the cluster's own"),
            Some(_) => warn("as --encryption-provider-config says"),
        }
    }),
    row("1.2.29", "only strong ciphers", |_| pass("TLS 1.3, and 1.2 with ECDHE and AEAD")),
    row("1.3.1", "--terminated-pod-gc-threshold is set", |_| pass("12,500, as upstream")),
    row("1.3.2", "--profiling is false (controller manager)", |_| pass("there is no profiling")),
    row("1.3.3", "--use-service-account-credentials is true", |_| pass("always")),
    row("1.3.4-5", "keys and root certificate of ServiceAccounts are set", |_| pass("always")),
    row("1.3.6", "RotateKubeletServerCertificate is true", |_| pass("renewed before they end")),
    row("1.3.7", "the controller manager listens on loopback only", |_| pass("it does not listen")),
    row("1.4.1-2", "no profiling, and the scheduler listens on loopback only", |_| {
        pass("it does not listen")
    }),
    row("2.1-7", "etcd's own flags", |facts| match facts.args.datastore.datastore_endpoint {
        None => none("the store is in the control plane's process"),
        Some(_) => warn("they are the etcd cluster's"),
    }),
    row("3.1.1", "users have no client certificates", |_| {
        warn("the administrator has one, in admin.kubeconfig; give users OpenID Connect (--oidc-issuer-url)")
    }),
    row("3.1.2-3", "users have no ServiceAccount or bootstrap tokens", |_| {
        warn("look at what you give them")
    }),
    row("3.2.1", "there is an audit policy", audit_path),
    row("3.2.2", "it covers what matters", |facts| match facts.args.api_server.audit_policy_file {
        None => pass("changes, Secrets, tokens, ways into Pods"),
        Some(_) => warn("as --audit-policy-file says"),
    }),
    row("4.1.1-2", "the kubelet's service file", |_| none("the kubelet has none of its own")),
    row("4.1.3-6", "kubeconfigs of kubelet and proxy are 600 and root's", |facts| {
        facts.kept(&["agent/kubelet.kubeconfig", "agent/kube-proxy.kubeconfig"], 0, 0o600)
    }),
    row("4.1.7-8", "the authority's certificate is 644 and root's", |facts| {
        facts.kept(&["agent/tls/ca.crt"], 0, 0o644)
    }),
    row("4.1.9-10", "the kubelet's configuration is 600 and root's", |facts| {
        facts.kept(&["agent"], 0, 0o700)
    }),
    row("4.2.1", "the kubelet's --anonymous-auth is false", |_| pass("always")),
    row("4.2.2", "the kubelet's --authorization-mode is not AlwaysAllow", |_| pass("it asks")),
    row("4.2.3", "the kubelet's --client-ca-file is set", |_| pass("always")),
    row("4.2.4", "--read-only-port is 0", |_| pass("there is none")),
    row("4.2.5", "--streaming-connection-idle-timeout is not 0", |facts| {
        facts.of_kubelet(|kubelet| match kubelet.streams_end {
            true => pass("streams that are silent end"),
            false => Fail("streams that are silent never end".to_owned()),
        })
    }),
    row("4.2.6", "--make-iptables-util-chains is true", |_| none("there are no such chains")),
    row("4.2.7", "--hostname-override is not set", |facts| match facts.args.node_name {
        None => pass("the host's name"),
        Some(_) => warn("--node-name is given"),
    }),
    row("4.2.8", "--event-qps is set", |_| pass("upstream's")),
    row("4.2.9", "the kubelet serves with its certificate", |facts| {
        facts.kept(&["agent/tls/kubelet.key", "agent/tls/kubelet-server.key"], 0, 0o600)
    }),
    row("4.2.10-11", "the kubelet's certificates are renewed", |_| pass("before they end")),
    row("4.2.12", "the kubelet has only strong ciphers", |_| pass("TLS 1.3, and 1.2 with ECDHE and AEAD")),
    row("4.2.13", "--pod-max-pids is set", |facts| {
        facts.of_kubelet(|kubelet| match kubelet.pod_pids_limit {
            limit if limit > 0 => Pass(limit.to_string()),
            _ => Fail("a Pod may have any number".to_owned()),
        })
    }),
    row("4.3.1", "the proxy's metrics are on loopback only", |_| pass("it does not listen")),
    row("5.1.1", "cluster-admin is given to few", |_| pass("to system:masters alone, unless you have")),
    row("5.1.2-13", "rights over Secrets, wildcards, Pods, tokens, Nodes", |_| {
        warn("the default roles are upstream's; look at your own")
    }),
    row("5.2.1-13", "Pod Security of namespaces", |_| {
        warn(
            "as upstream, a namespace without labels takes every Pod; label it pod-security.kubernetes.io/enforce",
        )
    }),
    row("5.3.1", "the network has NetworkPolicies", |facts| {
        match facts.args.container_runtime.cni_conf_dir {
            None => warn(
                "the one that is built in has not: they are stored and do nothing; use another with --cni-conf-dir",
            ),
            Some(_) => warn("see what yours has"),
        }
    }),
    row("5.4.1-2", "Secrets as files, or outside", |_| warn("look at your Pods")),
    row("5.5.1", "ImagePolicyWebhook", |_| {
        warn("there is no such plugin; check images before they are applied")
    }),
    row("5.6.1", "namespaces part what does not belong together", |_| warn("look at yours")),
    row("5.6.2", "seccomp is RuntimeDefault", |facts| {
        facts.of_kubelet(|kubelet| match kubelet.seccomp_default {
            true => pass("unless a Pod says otherwise"),
            false => Fail("containers can make every system call".to_owned()),
        })
    }),
    row("5.6.3-4", "security contexts, and nothing in default", |_| warn("look at your Pods")),
];

/// What a plugin's absence is.
fn plugin(facts: &Facts, name: &'static str, absent: fn(String) -> Verdict) -> Verdict {
    match facts.runs_plugin(name) {
        Err(verdict) => verdict,
        Ok(true) => pass("it runs"),
        Ok(false) => absent(format!("it does not run; --enable-admission-plugins {name}")),
    }
}

fn audit_path(facts: &Facts) -> Verdict {
    let path = facts.args.api_server.audit_log_path.as_deref();
    Pass(path.map_or_else(|| "server/logs/audit.log".to_owned(), |path| path.display().to_string()))
}

/// 0 keeps everything.
fn at_least(value: u64, least: u64) -> Verdict {
    match value {
        0 => pass("no limit"),
        value if value >= least => Pass(value.to_string()),
        value => Fail(format!("{value} is less than {least}")),
    }
}

fn etcd(facts: &Facts) -> Verdict {
    let datastore = &facts.args.datastore;
    let Some(endpoints) = &datastore.datastore_endpoint else {
        return none("the store is in the control plane's process");
    };
    let is_private = endpoints.split(',').all(|url| url.trim().starts_with("https://"));
    match (is_private, datastore.files().iter().all(|(_, file)| file.is_some())) {
        (true, true) => pass("TLS, with a client certificate"),
        (true, false) => {
            warn("TLS; give all of --datastore-cafile, --datastore-certfile, --datastore-keyfile")
        }
        (false, _) => Fail("without TLS".to_owned()),
    }
}
