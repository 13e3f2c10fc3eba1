//! The rows, in the benchmark's order.

use cli::args::Part;
use serde_json::{Value, json};

use super::Verdict::{Built, Fail, NotApplicable, Pass, Warn};
use super::{CONTROL_PLANE_UID, Facts, OF_CLIENTS, OF_CONTROL_PLANE, OF_ROOT, Row, TO_KUBELETS, Verdict};

const fn row(id: &'static str, title: &'static str, look: fn(&Facts) -> Verdict) -> Row {
    Row { id, title, look }
}

fn pass(why: &str) -> Verdict {
    Pass(why.to_owned())
}

fn built(why: &str) -> Verdict {
    Built(why.to_owned())
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
    row("1.1.9-10", "network plugins' files are 600 and root's", networks),
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
    row("1.2.2", "--token-auth-file is not set", |_| {
        built("there is no such flag, and no such file is read")
    }),
    row("1.2.3", "DenyServiceExternalIPs is set", |facts| plugin(facts, "DenyServiceExternalIPs", Fail)),
    row("1.2.4-5", "kubelets are met with certificates, and theirs verified", to_kubelets),
    row("1.2.6-8", "--authorization-mode is Node,RBAC", |_| {
        built("there are no other authorizers, and these are always asked")
    }),
    row("1.2.9", "EventRateLimit is set", |facts| plugin(facts, "EventRateLimit", Warn)),
    row("1.2.10", "AlwaysAdmit is not set", |_| built("there is no such plugin")),
    row("1.2.11", "AlwaysPullImages is set", |facts| plugin(facts, "AlwaysPullImages", Warn)),
    row("1.2.12", "ServiceAccount is set", |facts| plugin(facts, "ServiceAccount", Fail)),
    row("1.2.13", "NamespaceLifecycle is set", |facts| plugin(facts, "NamespaceLifecycle", Fail)),
    row("1.2.14", "NodeRestriction is set", |facts| plugin(facts, "NodeRestriction", Fail)),
    row("1.2.15", "--profiling is false", |_| built("there is no profiling")),
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
    row("1.2.21", "--service-account-lookup is true", |_| {
        built("every token is looked up, with the account and what it is bound to")
    }),
    row("1.2.22", "--service-account-key-file is set", |facts| {
        match facts.args.api_server.service_accounts.service_account_key_file.len() {
            0 => facts.kept(&["server/tls/service-account.key"], CONTROL_PLANE_UID, 0o600),
            count => Pass(format!("{count} of them")),
        }
    }),
    row("1.2.23-26", "etcd is met with certificates, clients too", etcd),
    row("1.2.27-28", "Secrets are encrypted in the store", encrypts),
    row("1.2.29", "only strong ciphers", ciphers),
    row("1.3.1", "--terminated-pod-gc-threshold is set", |_| {
        built("finished Pods beyond 12,500 are collected, upstream's default")
    }),
    row("1.3.2", "--profiling is false (controller manager)", |_| built("there is no profiling")),
    row("1.3.3", "--use-service-account-credentials is true", |_| {
        built("each controller acts as its own ServiceAccount")
    }),
    row("1.3.4-5", "keys and root certificate of ServiceAccounts are set", |facts| {
        let key = facts.kept(&["server/tls/service-account.key"], CONTROL_PLANE_UID, 0o600);
        if matches!(key, Fail(_)) { key } else { facts.lasts(&["server/tls/ca.crt"]) }
    }),
    row("1.3.6", "RotateKubeletServerCertificate is true", |facts| {
        facts.lasts(&["agent/tls/kubelet-server.crt"])
    }),
    row("1.3.7", "the controller manager listens on loopback only", |facts| facts.closed(&[10252, 10257])),
    row("1.4.1-2", "no profiling, and the scheduler listens on loopback only", |facts| {
        facts.closed(&[10251, 10259])
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
    row("3.2.1", "there is an audit policy", |facts| match &facts.audits {
        Ok(true) => pass("it has something logged"),
        Ok(false) => Fail("it has nothing logged".to_owned()),
        Err(why) => Fail(format!("{why:#}")),
    }),
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
    row("4.2.1", "the kubelet's --anonymous-auth is false", |facts| {
        told(facts, "/authentication/anonymous/enabled", &json!(false))
    }),
    row("4.2.2", "the kubelet's --authorization-mode is not AlwaysAllow", |facts| {
        told(facts, "/authorization/mode", &json!("Webhook"))
    }),
    row("4.2.3", "the kubelet's --client-ca-file is set", |facts| facts.lasts(&[OF_CLIENTS])),
    row("4.2.4", "--read-only-port is 0", |facts| facts.closed(&[10255])),
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
    row("4.2.8", "--event-qps is set", |_| built("upstream's limits, which nothing changes")),
    row("4.2.9", "the kubelet serves with its certificate", |facts| {
        facts.kept(&["agent/tls/kubelet.key", "agent/tls/kubelet-server.key"], 0, 0o600)
    }),
    row("4.2.10-11", "the kubelet's certificates are renewed", |facts| {
        facts.lasts(&["agent/tls/kubelet.crt", "agent/tls/kubelet-server.crt"])
    }),
    row("4.2.12", "the kubelet has only strong ciphers", ciphers),
    row("4.2.13", "--pod-max-pids is set", |facts| {
        facts.of_kubelet(|kubelet| match kubelet.pod_pids_limit {
            limit if limit > 0 => Pass(limit.to_string()),
            _ => Fail("a Pod may have any number".to_owned()),
        })
    }),
    row("4.3.1", "the proxy's metrics are on loopback only", |facts| facts.closed(&[10249])),
    row("5.1.1", "cluster-admin is given to few", |_| {
        warn(
            "system:masters alone has it at first; `kubectl get clusterrolebindings -o wide` shows who has it now",
        )
    }),
    row("5.1.2-13", "rights over Secrets, wildcards, Pods, tokens, Nodes", |_| {
        warn("the default roles are upstream's; look at your own")
    }),
    row("5.2.1-13", "Pod Security of namespaces", |_| {
        warn(
            "as upstream, a namespace without labels takes every Pod; label it pod-security.kubernetes.io/enforce",
        )
    }),
    row("5.3.1", "the network has NetworkPolicies", |facts| {
        if facts.args.container_runtime.cni_conf_dir.is_some() || !facts.args.runs(Part::Kubelet) {
            return warn("see what the network of your Nodes has");
        }
        if facts.args.runs(Part::NetworkPolicy) {
            return pass("the one that is built in enforces them");
        }
        Fail("they are stored and do nothing: start without --disable network-policy".to_owned())
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

/// Where the log is; the default one is looked for once there is a store.
fn audit_path(facts: &Facts) -> Verdict {
    const DEFAULT: &str = "server/logs/audit.log";
    let is_made = facts.files.contains_key("server/db/data.mdb");
    match facts.args.api_server.audit_log_path.as_deref() {
        None if is_made && !facts.files.contains_key(DEFAULT) => Fail(format!("{DEFAULT} is not there")),
        None => pass(DEFAULT),
        Some(path) if path.as_os_str() == "-" => {
            warn("it goes to standard output: see that somebody keeps it")
        }
        Some(path) => Pass(path.display().to_string()),
    }
}

fn networks(facts: &Facts) -> Verdict {
    if facts.args.container_runtime.cni_conf_dir.is_none() {
        return none("the network is built in");
    }
    let is_open = |(_, is): &&(String, super::Mode)| is.uid != 0 || is.mode & !0o600 != 0;
    match facts.networks.iter().find(is_open) {
        Some((file, is)) => Fail(format!("{file} is {:04o} of user {}", is.mode, is.uid)),
        None if facts.networks.is_empty() => none("none is there yet"),
        None => pass("600 at most, of user 0"),
    }
}

fn to_kubelets(facts: &Facts) -> Verdict {
    let Some(certificate) = facts.certificates.get(TO_KUBELETS) else { return none("none is there yet") };
    if certificate.groups.iter().any(|group| group == auth::MASTERS) {
        return Fail(format!("{TO_KUBELETS} is one of {}", auth::MASTERS));
    }
    if certificate.ends_second <= facts.now_second {
        return Fail(format!("{TO_KUBELETS} has ended"));
    }
    Pass(format!("with a certificate of {}", certificate.groups.join(", ")))
}

fn encrypts(facts: &Facts) -> Verdict {
    match &facts.encrypts {
        None => none("no configuration is there yet"),
        Some(Ok(Some(provider))) => Pass(format!("by {provider}")),
        Some(Ok(None)) => Fail("new Secrets are stored as they are".to_owned()),
        Some(Err(why)) => Fail(format!("{why:#}")),
    }
}

/// TLS 1.3, and of 1.2 what is ephemeral and authenticated.
fn ciphers(facts: &Facts) -> Verdict {
    let is_strong = |name: &&String| {
        let is_ephemeral = name.starts_with("TLS13_") || name.starts_with("TLS_ECDHE_");
        is_ephemeral && (name.contains("_GCM_") || name.contains("_CHACHA20_POLY1305_"))
    };
    match facts.ciphers.iter().find(|name| !is_strong(name)) {
        Some(weak) => Fail(format!("{weak} is not")),
        None => Pass(facts.ciphers.join(", ")),
    }
}

/// Passes if the kubelet's configuration has this.
fn told(facts: &Facts, pointer: &str, wanted: &Value) -> Verdict {
    facts.of_kubelet(|kubelet| match kubelet.config.pointer(pointer) {
        Some(is) if is == wanted => Pass(format!("it is {is}")),
        Some(is) => Fail(format!("it is {is}")),
        None => Fail("it is not set".to_owned()),
    })
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
