//! Who is who in a cluster: the authority, the certificates it signs, and the files that the parts find theirs in.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use auth::pki::{self, Authority, Subject};
use base::Clock;
use cli::args::Part;

use super::Settings;
use super::hand_over::as_control_plane;
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
    super::hand_over::prepare(layout)?;
    let create = |dirs: &[&Path]| {
        let create =
            |dir: &&Path| std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()));
        dirs.iter().try_for_each(create)
    };
    create(&[&agent, &agent.join("tls")])?;
    as_control_plane(|| create(&[&keys, &server.join("db")]))?;
    if settings.args.datastore.datastore_endpoint.is_some() {
        super::shared::agree(settings, layout, now)?;
    }
    let authority = as_control_plane(|| Ok(Authority::load_or_create(&keys, now)?))?;
    let issue = |subject: &Subject| as_control_plane(|| Ok(authority.issue(&keys, subject, now)?));
    let authority_pem = authority.certificate_pem();
    as_control_plane(|| Ok(pki::service_account_key(&keys)?))?;
    let localhost = IpAddr::from([127, 0, 0, 1]);
    let mut ips = vec![settings.kubernetes_service_ip, localhost, settings.node_ip];
    if !settings.args.bind_address.is_unspecified() {
        ips.push(settings.args.bind_address);
    }
    ips.dedup();
    issue(&Subject::api_server(&settings.args.cluster_domain, ips))?;
    issue(&Subject::client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"))?;
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
    let admin = issue(&Subject::client("admin", "system:admin", "system:masters"))?;

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
            let identity = issue(&subject)?;
            as_control_plane(|| Ok(write(&path, name, &identity, 0o600)?))?;
        }
    }
    super::kubeconfigs::write(&settings.args, layout)?;
    super::datastore::prepare(&settings.args.datastore, layout)?;
    super::encryption::prepare(&settings.args.api_server, layout)?;
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o700))?;
    Ok(())
}

/// Where clients on this host find the API server.
pub(super) fn reachable(settings: &Settings) -> IpAddr {
    let bound = settings.args.bind_address;
    if bound.is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { bound }
}
