//! Who is who in a cluster: the certificates that its authorities sign, and the files that the parts find theirs in.
//!
//! Of what is made here only the administrator's certificate is for `system:masters`: it opens the cluster when RBAC does
//! not. Everything else has the rights that its user or group is bound to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use auth::pki::{self, Authority, Subject};
use base::Clock;
use cli::args::Part;
use machinery::net::Family;

use super::Settings;
use super::authorities::{self, Authorities, KUBELET_CLIENT_CA};
use super::hand_over::as_control_plane;
use crate::layout::Layout;

/// The common name of the certificate that this cluster's own front proxies show, and its file.
pub(super) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// This host, for itself.
const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Makes folders, keys, certificates and kubeconfigs that are absent or end soon.
///
/// # Errors
/// If something cannot be written.
pub(crate) fn prepare(settings: &Settings, layout: &Layout) -> Result<()> {
    let now = Clock::system().now();
    let server = layout.server();
    let keys = server.join("tls");
    super::hand_over::prepare(layout)?;
    let create = |dirs: &[&Path]| {
        let create =
            |dir: &&Path| std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()));
        dirs.iter().try_for_each(create)
    };
    as_control_plane(|| create(&[&keys, &server.join("db")]))?;
    if settings.args.datastore.datastore_endpoint.is_some() {
        super::shared::agree(settings, layout, now)?;
    }
    let authorities = as_control_plane(|| Authorities::load_or_create(&keys, now))?;
    let issue = |by: &Authority, subject: &Subject| as_control_plane(|| Ok(by.issue(&keys, subject, now)?));
    let authority_pem = authorities.serving.certificate_pem();
    as_control_plane(|| Ok(pki::service_account_key(&keys)?))?;
    issue(&authorities.serving, &serving_subject(settings))?;
    let clients = &authorities.clients;
    let to_kubelets = Subject::client(
        "apiserver-kubelet-client",
        "kube-apiserver-kubelet-client",
        auth::KUBELET_API_CLIENTS,
    );
    issue(clients, &to_kubelets)?;
    issue(&authorities.front_proxy, &Subject::user(FRONT_PROXY_CLIENT, FRONT_PROXY_CLIENT))?;
    let believed = as_control_plane(|| authorities::client_bundle(&keys, now))?;
    let issuer = Issuer { authorities: &authorities, believed: &believed, now };
    let admin = issue(clients, &Subject::client("admin", "system:admin", auth::MASTERS))?;

    let url = format!("https://{}", reachable(settings));
    let write = |path: &Path, user: &str, identity: &pki::Identity, mode: u32| {
        pki::write_file(path, pki::kubeconfig(&url, authority_pem, user, identity).as_bytes(), mode)
    };
    issuer.prepare_node(layout, settings, &url, ServerName::OfUrl)?;
    for node in settings.local_nodes(layout)? {
        super::local_nodes::prepare_folder(layout, &node)?;
        let own = settings.of_local_node(&node)?;
        issuer.prepare_node(&node.layout, &own, &settings.url_for_nodes(), ServerName::OfAll)?;
        super::servers::put_first(&settings.url_for_nodes(), &node.layout)?;
        own.save(&node.layout)?;
    }
    write(&layout.admin_kubeconfig(), "admin", &admin, 0o600)?;
    let args = &settings.args;
    let is_cloud_outside = args.has_cloud() && args.cloud.cloud_provider_endpoint.is_none();
    let outside = [
        (
            !args.runs(Part::ControllerManager),
            layout.controller_manager_kubeconfig(),
            "system:kube-controller-manager",
        ),
        (!args.runs(Part::Scheduler), layout.scheduler_kubeconfig(), "system:kube-scheduler"),
        (is_cloud_outside, layout.cloud_controller_manager_kubeconfig(), auth::CLOUD_CONTROLLER_MANAGER),
    ];
    for (is_outside, path, user) in outside {
        // A key that nobody uses is not lying about.
        if is_outside {
            let name = user.trim_start_matches("system:");
            let identity = issue(clients, &Subject::user(name, user))?;
            as_control_plane(|| Ok(write(&path, name, &identity, 0o600)?))?;
        }
    }
    super::kubeconfigs::write(&settings.args, layout)?;
    super::datastore::prepare(&settings.args.datastore, layout)?;
    super::encryption::prepare(&settings.args.api_server, layout)?;
    super::configurations::prepare(settings, layout)?;
    Ok(())
}

/// What the certificate of an API server is asked to be for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerName {
    /// The address in the URL.
    OfUrl,
    /// The name that all servers have, wherever they are.
    OfAll,
}

/// Who makes the files that a Node's parts find theirs in.
struct Issuer<'a> {
    authorities: &'a Authorities,
    /// Whose clients kubelets believe, PEM.
    believed: &'a str,
    now: jiff::Timestamp,
}

impl Issuer<'_> {
    fn prepare_node(&self, layout: &Layout, own: &Settings, url: &str, name: ServerName) -> Result<()> {
        let (agent, tls) = (layout.agent(), layout.agent().join("tls"));
        std::fs::create_dir_all(&tls).with_context(|| format!("create {}", tls.display()))?;
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o700))?;
        let authority_pem = self.authorities.serving.certificate_pem();
        pki::write_file(&tls.join("ca.crt"), authority_pem.as_bytes(), 0o644)?;
        pki::write_file(&tls.join(KUBELET_CLIENT_CA), self.believed.as_bytes(), 0o644)?;
        let node = format!("{}{}", auth::NODE_USER_PREFIX, own.node_name);
        let clients = &self.authorities.clients;
        let kubelet = clients.issue(&tls, &Subject::client("kubelet", &node, auth::NODES), self.now)?;
        let addresses = [own.node_ips(), LOCALHOST.to_vec()].concat();
        let serving = Subject::server("kubelet-server", &node, vec![own.node_name.clone()], addresses);
        self.authorities.kubelet_serving.issue(&tls, &serving, self.now)?;
        let proxy = clients.issue(&tls, &Subject::user("kube-proxy", auth::PROXY_USER), self.now)?;
        let ingress = clients.issue(&tls, &Subject::user("ingress", auth::INGRESS_USER), self.now)?;
        let kubeconfigs = [
            (layout.agent_kubeconfig(), "kubelet", &kubelet),
            (layout.proxy_kubeconfig(), "kube-proxy", &proxy),
            (layout.ingress_kubeconfig(), "ingress", &ingress),
        ];
        for (path, user, identity) in kubeconfigs {
            let text = pki::kubeconfig(url, authority_pem, user, identity);
            let text = if name == ServerName::OfAll { super::join::of_any_server(&text) } else { text };
            pki::write_file(&path, text.as_bytes(), 0o600)?;
        }
        Ok(())
    }
}

/// The API server's certificate: every name and address that it is reached by.
fn serving_subject(settings: &Settings) -> Subject {
    let mut ips = [settings.node_ips(), vec![settings.advertised()], LOCALHOST.to_vec()].concat();
    // The first of the main family is that of the `kubernetes` Service.
    ips.extend(settings.args.service_cidr.iter().filter_map(|cidr| cidr.nth(1)));
    if !settings.args.bind_address.is_unspecified() {
        ips.push(settings.args.bind_address);
    }
    ips.extend(settings.args.tls_san.iter().filter_map(|name| name.parse::<IpAddr>().ok()));
    ips.sort_unstable();
    ips.dedup();
    let mut serving = Subject::api_server(&settings.args.cluster_domain, ips);
    let names = settings.args.tls_san.iter().filter(|name| name.parse::<IpAddr>().is_err());
    serving.dns_names.extend(names.cloned());
    serving
}

/// Where clients on this host find the API server.
pub(super) fn reachable(settings: &Settings) -> SocketAddr {
    let bound = settings.args.bind_address;
    let ip = match settings.args.service_cidr.main().family() {
        _ if !bound.is_unspecified() => bound,
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, settings.args.https_listen_port)
}
