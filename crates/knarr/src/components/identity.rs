//! Who is who in a cluster: the authority, the certificates it signs, and the files that the parts find theirs in.

use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use anyhow::{Context, Result};
use auth::pki::{self, Authority, Subject};
use base::Clock;
use cli::args::Part;

use super::Settings;
use crate::layout::Layout;

/// The user that the control plane becomes. It needs no entry in `/etc/passwd`; nothing else uses it.
pub(crate) const CONTROL_PLANE_UID: u32 = 64_250;
/// Its group.
pub(crate) const CONTROL_PLANE_GID: u32 = 64_250;

/// Makes folders, keys, certificates and kubeconfigs that are absent or end soon.
///
/// # Errors
/// If something cannot be written.
pub(crate) fn prepare(settings: &Settings, layout: &Layout) -> Result<()> {
    let now = Clock::system().now();
    let (server, agent) = (layout.server(), layout.agent());
    let keys = server.join("tls");
    for dir in [&server, &agent, &keys, &server.join("db"), &agent.join("tls")] {
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    if settings.args.datastore.datastore_endpoint.is_some() {
        super::shared::agree(settings, layout, now)?;
    }
    let authority = Authority::load_or_create(&keys, now)?;
    let authority_pem = authority.certificate_pem();
    pki::service_account_key(&keys)?;
    let localhost = IpAddr::from([127, 0, 0, 1]);
    let mut ips = vec![settings.kubernetes_service_ip, localhost, settings.node_ip];
    if !settings.args.bind_address.is_unspecified() {
        ips.push(settings.args.bind_address);
    }
    ips.extend(settings.args.tls_san.iter().filter_map(|name| name.parse::<IpAddr>().ok()));
    ips.sort_unstable();
    ips.dedup();
    let mut serving = Subject::api_server(&settings.args.cluster_domain, ips);
    let names = settings.args.tls_san.iter().filter(|name| name.parse::<IpAddr>().is_err());
    serving.dns_names.extend(names.cloned());
    authority.issue(&keys, &serving, now)?;
    authority.issue(
        &keys,
        &Subject::client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        now,
    )?;
    pki::write_file(&agent.join("tls/ca.crt"), authority_pem.as_bytes(), 0o644)?;
    let node = &settings.node_name;
    let kubelet = Subject::client("kubelet", &format!("system:node:{node}"), "system:nodes");
    let kubelet = authority.issue(&agent.join("tls"), &kubelet, now)?;
    let serving = Subject::server(
        "kubelet-server",
        &format!("system:node:{node}"),
        vec![node.clone()],
        vec![settings.node_ip, localhost],
    );
    authority.issue(&agent.join("tls"), &serving, now)?;
    let proxy = authority.issue(
        &agent.join("tls"),
        &Subject::client("kube-proxy", "system:kube-proxy", "system:node-proxier"),
        now,
    )?;
    let admin = authority.issue(&keys, &Subject::client("admin", "system:admin", "system:masters"), now)?;

    let url = format!("https://{}:{}", reachable(settings), settings.args.https_listen_port);
    let write = |path: &Path, user: &str, identity: &pki::Identity, mode: u32| {
        pki::write_file(path, pki::kubeconfig(&url, authority_pem, user, identity).as_bytes(), mode)
    };
    write(&layout.agent_kubeconfig(), "kubelet", &kubelet, 0o600)?;
    write(&layout.proxy_kubeconfig(), "kube-proxy", &proxy, 0o600)?;
    write(&layout.admin_kubeconfig(), "admin", &admin, 0o600)?;
    let outside = [
        (Part::ControllerManager, layout.controller_manager_kubeconfig(), "system:kube-controller-manager"),
        (Part::Scheduler, layout.scheduler_kubeconfig(), "system:kube-scheduler"),
    ];
    for (part, path, user) in outside {
        // A key that nobody uses is not lying about.
        if !settings.args.runs(part) {
            let name = user.trim_start_matches("system:");
            let subject = Subject { organization: None, ..Subject::client(name, user, "") };
            write(&path, name, &authority.issue(&keys, &subject, now)?, 0o600)?;
        }
    }
    super::kubeconfigs::write(&settings.args, layout)?;
    super::datastore::prepare(&settings.args.datastore, layout)?;
    super::encryption::prepare(&settings.args.api_server, layout)?;
    hand_over(&server)?;
    std::fs::set_permissions(&server, std::fs::Permissions::from_mode(0o700))?;
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o700))?;
    Ok(())
}

/// Where clients on this host find the API server.
pub(super) fn reachable(settings: &Settings) -> IpAddr {
    let bound = settings.args.bind_address;
    if bound.is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { bound }
}

/// Gives everything below `dir` to the control plane's user.
fn hand_over(dir: &Path) -> Result<()> {
    chown(dir, Some(CONTROL_PLANE_UID), Some(CONTROL_PLANE_GID))
        .with_context(|| format!("hand over {}", dir.display()))?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            hand_over(&entry.path())?;
        } else {
            chown(entry.path(), Some(CONTROL_PLANE_UID), Some(CONTROL_PLANE_GID))?;
        }
    }
    Ok(())
}
