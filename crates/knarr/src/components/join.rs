//! How a host becomes a Node of a cluster elsewhere: it makes sure that the cluster is the one that its token is for,
//! proves itself with the token, and is given certificates for keys that never leave it.
//!
//! The token is sent only to a server that has the authority whose hash the token names. What is there already from
//! an earlier run is kept as long as it is good: then no token is needed. Source: k3s' agent, kubeadm's TLS bootstrap.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use auth::pki::{self, Identity, Subject};
use base::{Backoff, Clock, Random, Tasks};
use cli::args::{NetworkArgs, Part, ServerArgs};
use cli::cloud_provider::CloudProvider;
use controller::{Informers, Scope};
use http::Uri;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeAddress, NodeStatus};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use machinery::net::{Cidr, Cidrs, Family};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::authorities::KUBELET_CLIENT_CA;
use super::shared::authority_hash;
use crate::layout::Layout;

/// What Nodes must know of their cluster; `kube-system/knarr-config`.
pub(crate) const CONFIG: &str = "knarr-config";
/// Whose certificates Nodes believe, and who signs theirs; `kube-system/knarr-authorities`.
pub(super) const AUTHORITIES: &str = "knarr-authorities";
/// In it: the authorities of clients, PEM.
pub(super) const CLIENT_CA: &str = "client-ca.crt";
/// In it: the authority of kubelets' ports, PEM.
pub(super) const KUBELET_SERVING_CA: &str = "kubelet-serving-ca.crt";
/// The group of those who come with a token.
pub(crate) const TOKEN_GROUP: &str = "system:bootstrappers:knarr:default-node-token";
/// What all servers' certificates are for, whatever their address.
const SERVER_NAME: &str = "kubernetes";
/// How long a server that does not answer is asked.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a certificate may take.
const SIGNING_MAX: Duration = Duration::from_secs(60);

/// What a Node that joins is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterConfig {
    pub(crate) cluster_cidr: Cidrs,
    pub(crate) service_cidr: Cidrs,
    /// Of each family one, the main one first.
    #[serde(with = "cli::args::one_or_many")]
    pub(crate) cluster_dns: Vec<IpAddr>,
    pub(crate) cluster_domain: String,
    #[serde(default)]
    pub(crate) network: NetworkArgs,
    /// Whether Nodes serve Ingresses.
    #[serde(default)]
    pub(crate) ingress: bool,
    /// Whether a cloud says of Nodes what they are.
    #[serde(default)]
    pub(crate) cloud: CloudProvider,
}

impl ClusterConfig {
    /// What a server's flags say.
    pub(crate) fn of(args: &ServerArgs) -> Self {
        Self {
            cluster_cidr: args.cluster_cidr,
            service_cidr: args.service_cidr,
            cluster_dns: args.dns_addresses(),
            cluster_domain: args.cluster_domain.clone(),
            network: args.network.clone(),
            ingress: !args.disable.contains(&Part::Ingress),
            cloud: args.registration.cloud_provider,
        }
    }
}

/// A token of `knarr token create`: `K10HASH::ID.SECRET`.
pub(crate) struct JoinToken {
    pub(crate) authority_hash: String,
    pub(crate) bearer: String,
}

impl JoinToken {
    /// Reads the text.
    ///
    /// # Errors
    /// If it does not have the form.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let form =
            "--token must have the form K10HASH::ID.SECRET: `knarr token create` on a server makes one";
        let (hash, bearer) = text.strip_prefix("K10").and_then(|rest| rest.split_once("::")).context(form)?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hash || auth::bootstrap_token::split(bearer).is_none() {
            bail!(form);
        }
        Ok(Self { authority_hash: hash.to_lowercase(), bearer: bearer.to_owned() })
    }
}

/// This host as it is to be.
pub(crate) struct Newcomer<'a> {
    pub(crate) server: &'a str,
    pub(crate) token: Option<&'a JoinToken>,
    pub(crate) node_name: &'a str,
    /// What it may be reached at: of the families that the cluster does not have, nobody is told.
    pub(crate) node_ips: &'a [IpAddr],
    /// What its flags say of the Node that is made: its taints.
    pub(crate) args: &'a ServerArgs,
}

impl Newcomer<'_> {
    /// Joins, or makes sure that what an earlier run has left is good.
    ///
    /// # Errors
    /// If the cluster is another one, does not answer, or refuses.
    pub(crate) async fn join(&self, layout: &Layout) -> Result<ClusterConfig> {
        let tls = layout.agent().join("tls");
        std::fs::create_dir_all(&tls).with_context(|| format!("create {}", tls.display()))?;
        let tasks = Tasks::new();
        let joined = self.join_in(layout, &tls, &tasks).await;
        tasks.stop_and_wait().await;
        joined
    }

    async fn join_in(&self, layout: &Layout, tls: &Path, tasks: &Tasks) -> Result<ClusterConfig> {
        if pki::is_reserved_node_name(self.node_name) {
            bail!("the name {} is no Node's: give another one with --node-name", self.node_name);
        }
        let authority = self.authority(tls).await?;
        let now = Clock::system().now();
        let name = format!("{}{}", auth::NODE_USER_PREFIX, self.node_name);
        let kept = Kept { tls, tasks, authority: &authority, now };
        let subject = Subject::client("kubelet", &name, auth::NODES);
        let client = match pki::usable(tls, &subject, &authority, now)? {
            Some(identity) => identity,
            None => {
                let token =
                    self.token.context("--token is needed: `knarr token create` on a server makes one")?;
                kept.ask(&self.client(&authority, Proof::Token(&token.bearer))?, &KUBELET, &subject).await?
            }
        };
        let kube = self.client(&authority, Proof::Certificate(&client))?;
        let config = read_config(&kube).await?;
        let node_ips = of_cluster(self.node_ips, config.cluster_cidr)?;
        let believed = read_authorities(&kube).await?;
        pki::write_file(&tls.join(KUBELET_CLIENT_CA), believed.clients.as_bytes(), 0o644)?;
        // One of an authority that there was before is good for this.
        let client = kept.of(&kube, &KUBELET, &subject, &believed.clients).await?;
        let kube = self.client(&authority, Proof::Certificate(&client))?;
        let proxy = Subject::user("kube-proxy", auth::PROXY_USER);
        let proxy = kept.of(&kube, &PROXY, &proxy, &believed.clients).await?;
        let ingress = Subject::user("ingress", auth::INGRESS_USER);
        let ingress = match config.ingress {
            true => Some(kept.of(&kube, &INGRESS, &ingress, &believed.clients).await?),
            false => None,
        };
        self.register(&kube, &node_ips, layout, config.cloud).await.context("make the Node")?;
        self.serving(&kube, &kept, &name, &node_ips, &believed.kubelet_serving).await?;
        let kubeconfigs = [
            (layout.agent_kubeconfig(), "kubelet", &client),
            (layout.proxy_kubeconfig(), "kube-proxy", &proxy),
        ];
        let ingress = ingress.as_ref().map(|identity| (layout.ingress_kubeconfig(), "ingress", identity));
        for (path, user, identity) in kubeconfigs.into_iter().chain(ingress) {
            let text = pki::kubeconfig(self.server, &authority, user, identity);
            pki::write_file(&path, of_any_server(&text).as_bytes(), 0o600)?;
        }
        Ok(config)
    }

    /// The certificate of the kubelet's port. Where the server sees this host at another address, behind NAT, it is for the
    /// Node's name alone: by that the server knows the kubelet through this host's tunnel.
    async fn serving(
        &self,
        kube: &kube::Client,
        kept: &Kept<'_>,
        user: &str,
        node_ips: &[IpAddr],
        issuers: &str,
    ) -> Result<Identity> {
        let subject = |addresses| Subject {
            organization: Some(auth::NODES.to_owned()),
            ..Subject::server("kubelet-server", user, vec![self.node_name.to_owned()], addresses)
        };
        let whole = subject(node_ips.to_vec());
        if let Some(known) = kept.known(&whole, issuers)? {
            return Ok(known);
        }
        let seen = seen_at(kube, &whole).await.context("ask where the server sees this host")?;
        if seen.is_none_or(|seen| node_ips.contains(&seen)) {
            return kept.of(kube, &SERVING, &whole, issuers).await;
        }
        tracing::info!(?node_ips, ?seen, "the server sees this host at another address");
        kept.of(kube, &SERVING, &subject(Vec::new()), issuers).await
    }

    /// The cluster's authority: known from before, or shown by the server and named by the token.
    async fn authority(&self, tls: &Path) -> Result<String> {
        let path = tls.join("ca.crt");
        let known = match path.exists() {
            true => Some(std::fs::read_to_string(&path).context("read the cluster's authority")?),
            false => None,
        };
        let Some(token) = self.token else {
            return known.context("--token is needed: `knarr token create` on a server makes one");
        };
        if let Some(known) = known.filter(|known| authority_hash(known.as_bytes()) == token.authority_hash) {
            return Ok(known);
        }
        let mut config = kube::Config::new(self.uri()?);
        // Whoever answers is not believed: what it says is compared with the token.
        config.accept_invalid_certs = true;
        let client = kube::Client::try_from(config)?;
        let ask = || http::Request::get("/cacerts").body(Vec::new());
        let shown = again(async || Ok(client.request_text(ask()?).await?)).await;
        let shown = shown.with_context(|| format!("ask {} for its authority", self.server))?;
        let found = authority_hash(shown.as_bytes());
        if found != token.authority_hash {
            bail!(
                "{} is not the cluster that --token is for: its authority has the hash {found}, not {}",
                self.server,
                token.authority_hash
            );
        }
        pki::write_file(&path, shown.as_bytes(), 0o644)?;
        Ok(shown)
    }

    fn uri(&self) -> Result<Uri> {
        let uri: Uri = self.server.parse().with_context(|| format!("--server {}", self.server))?;
        if uri.scheme_str() != Some("https") || uri.host().is_none() {
            bail!(
                "--server {} must be a URL such as https://192.0.2.1:6443 or https://[2001:db8::1]:6443",
                self.server
            );
        }
        Ok(uri)
    }

    fn client(&self, authority: &str, proof: Proof<'_>) -> Result<kube::Client> {
        use base64::Engine;
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let mut config = kube::Config::new(self.uri()?);
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authority.as_bytes()).collect();
        config.root_cert = Some(roots?.into_iter().map(|root| root.to_vec()).collect());
        config.tls_server_name = Some(SERVER_NAME.to_owned());
        match proof {
            Proof::Token(token) => config.auth_info.token = Some(token.to_owned().into()),
            Proof::Certificate(identity) => {
                config.auth_info.client_certificate_data = Some(encode(&identity.certificate_pem));
                config.auth_info.client_key_data = Some(encode(&identity.key_pem).into());
            }
        }
        Ok(kube::Client::try_from(config)?)
    }

    /// The Node with its addresses: what its certificate may be for. The kubelet adds the rest.
    async fn register(
        &self,
        kube: &kube::Client,
        node_ips: &[IpAddr],
        layout: &Layout,
        cluster_cloud: CloudProvider,
    ) -> Result<()> {
        let mut args = self.args.clone();
        args.join_cloud(cluster_cloud);
        let nodes: Api<Node> = Api::all(kube.clone());
        let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
        let internal = node_ips.iter().map(|ip| address("InternalIP", ip.to_string()));
        let hostname = address("Hostname", self.node_name.to_owned());
        let addresses: Vec<NodeAddress> = internal.chain([hostname]).collect();
        let node = Node {
            metadata: ObjectMeta { name: Some(self.node_name.to_owned()), ..ObjectMeta::default() },
            spec: super::kubelet_config::spec_of_newcomer(layout, &args)?,
            status: Some(NodeStatus { addresses: Some(addresses.clone()), ..NodeStatus::default() }),
        };
        match nodes.create(&PostParams::default(), &node).await {
            Ok(_) => Ok(()),
            // Where a Node of a cloud is the cloud has said, or will.
            Err(kube::Error::Api(status)) if status.is_already_exists() && args.has_cloud() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let mut list = vec![json!({"$patch": "replace"})];
                list.extend(addresses.iter().map(|address| json!(address)));
                let patch = json!({"status": {"addresses": list}});
                let params = PatchParams::default();
                nodes.patch_status(self.node_name, &params, &Patch::Strategic(&patch)).await.map(drop)?;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Which of a Node's addresses count in a cluster: one of each of its families, the main one first. Pure.
fn of_cluster(node_ips: &[IpAddr], pods: Cidrs) -> Result<Vec<IpAddr>> {
    let of = |family: Family| node_ips.iter().copied().find(|ip| Family::of(*ip) == family);
    let of = |cidr: Cidr| {
        of(cidr.family()).with_context(|| {
            let family = cidr.family().as_str();
            format!("this Node has no {family} address, and Pods of the cluster have ({pods}); give one with --node-ip")
        })
    };
    pods.iter().map(of).collect()
}

/// A kubeconfig that is good for any server, whatever its address.
pub(super) fn of_any_server(kubeconfig: &str) -> String {
    const AUTHORITY: &str = "    certificate-authority-data:";
    kubeconfig.replace(AUTHORITY, &format!("    tls-server-name: {SERVER_NAME}\n{AUTHORITY}"))
}

/// A token that the server does not take is the likely case.
fn refused(error: anyhow::Error, signer: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) if status.code == 401 => anyhow::anyhow!(
            "the server does not take --token: it is wrong, or its time is over; `knarr token create` on a server makes another"
        ),
        Some(kube::Error::Api(status)) => {
            anyhow::anyhow!("the server refuses a certificate of {signer}: {}", status.message)
        }
        _ => error.context(format!("ask for a certificate of {signer}")),
    }
}

/// How a client says who it is.
enum Proof<'a> {
    Token(&'a str),
    Certificate(&'a Identity),
}

/// Tries until it works or the time is over; what the server refuses is final.
async fn again<T>(attempt: impl AsyncFn() -> Result<T>) -> Result<T> {
    let (random, deadline) = (Random::from_system(), tokio::time::Instant::now() + TIMEOUT);
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3), 0.3);
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let is_refused = matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code < 500);
        if is_refused || tokio::time::Instant::now() >= deadline {
            return Err(error);
        }
        tracing::info!(error = format!("{error:#}"), "the server does not answer yet");
        tokio::time::sleep(backoff.next(&random)).await;
    }
}

async fn read_config(kube: &kube::Client) -> Result<ClusterConfig> {
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), "kube-system");
    let map =
        again(async || Ok(maps.get(CONFIG).await?)).await.context("read the cluster's configuration")?;
    let text =
        map.data.as_ref().and_then(|data| data.get("config")).context("kube-system/knarr-config is empty")?;
    serde_json::from_str(text).context("read kube-system/knarr-config")
}

/// What the cluster says of its authorities.
struct Believed {
    clients: String,
    kubelet_serving: String,
}

async fn read_authorities(kube: &kube::Client) -> Result<Believed> {
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), "kube-system");
    let map = again(async || Ok(maps.get(AUTHORITIES).await?)).await;
    let data = map.context("read the cluster's authorities")?.data.unwrap_or_default();
    let of = |name: &str| {
        data.get(name).cloned().with_context(|| format!("kube-system/{AUTHORITIES} has no {name}"))
    };
    Ok(Believed { clients: of(CLIENT_CA)?, kubelet_serving: of(KUBELET_SERVING_CA)? })
}

/// Whom to ask for a certificate, and what for.
struct Signer {
    name: &'static str,
    usage: &'static str,
}

const KUBELET: Signer = Signer { name: "kubernetes.io/kube-apiserver-client-kubelet", usage: "client auth" };
const PROXY: Signer = Signer { name: auth::PROXY_SIGNER, usage: "client auth" };
const INGRESS: Signer = Signer { name: auth::INGRESS_SIGNER, usage: "client auth" };
const SERVING: Signer = Signer { name: "kubernetes.io/kubelet-serving", usage: "server auth" };

/// The certificates of this host, in its folder.
struct Kept<'a> {
    tls: &'a Path,
    tasks: &'a Tasks,
    /// The cluster's, by which it is known.
    authority: &'a str,
    now: jiff::Timestamp,
}

impl Kept<'_> {
    /// What there is, if the first of `issuers` has signed it; otherwise a new one.
    async fn of(
        &self,
        kube: &kube::Client,
        signer: &Signer,
        subject: &Subject,
        issuers: &str,
    ) -> Result<Identity> {
        match self.known(subject, issuers)? {
            Some(known) => Ok(known),
            None => self.ask(kube, signer, subject).await,
        }
    }

    /// What there is, if the first of `issuers` has signed it.
    fn known(&self, subject: &Subject, issuers: &str) -> Result<Option<Identity>> {
        let known = pki::usable(self.tls, subject, self.authority, self.now)?;
        Ok(known.filter(|known| pki::is_issued_by(&known.certificate_pem, issuers)))
    }

    async fn ask(&self, kube: &kube::Client, signer: &Signer, subject: &Subject) -> Result<Identity> {
        let identity = certificate(kube, self.tasks, signer.name, signer.usage, subject).await?;
        pki::keep(self.tls, subject, self.authority, &identity)?;
        Ok(identity)
    }
}

fn request_object(request_pem: String, signer: &str, usage: &str) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            signer_name: signer.to_owned(),
            request: ByteString(request_pem.into_bytes()),
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// Where the server sees this host, as it would write it into a request; nothing if it does not say.
async fn seen_at(kube: &kube::Client, subject: &Subject) -> Result<Option<IpAddr>> {
    let requests: Api<CertificateSigningRequest> = Api::all(kube.clone());
    let request = request_object(pki::request(subject)?.0, SERVING.name, SERVING.usage);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let made = again(async || Ok(requests.create(&params, &request).await?)).await?;
    let seen = made.spec.extra.unwrap_or_default().remove(auth::PEER_ADDRESS).unwrap_or_default();
    Ok(seen.first().and_then(|address| address.parse().ok()))
}

/// Asks for a certificate for a new key, and waits until it is signed.
async fn certificate(
    kube: &kube::Client,
    tasks: &Tasks,
    signer: &str,
    usage: &str,
    subject: &Subject,
) -> Result<Identity> {
    let (request_pem, key_pem) = pki::request(subject)?;
    let requests: Api<CertificateSigningRequest> = Api::all(kube.clone());
    let request = request_object(request_pem, signer, usage);
    let made = again(async || Ok(requests.create(&PostParams::default(), &request).await?)).await;
    let name = made.map_err(|error| refused(error, signer))?.metadata.name;
    let name = name.context("the API server has given the request no name")?;
    let informers = Informers::new(kube.clone(), tasks.child(), Clock::system(), Random::from_system());
    let signed = tokio::time::timeout(SIGNING_MAX, signed(&informers, &name)).await;
    informers.tasks().stop();
    let certificate_pem = signed.with_context(|| {
        format!(
            "the request {name} for a certificate of {signer} was not answered; one for an address from which this host \
             does not reach the server is approved by hand: `kubectl certificate approve {name}`"
        )
    })??;
    Ok(Identity { certificate_pem, key_pem })
}

async fn signed(informers: &Informers, name: &str) -> Result<String> {
    let scope = Scope { field_selector: Some(format!("metadata.name={name}")), ..Scope::default() };
    let requests = informers.scoped::<CertificateSigningRequest>(scope);
    let mut changes = requests.subscribe();
    loop {
        if let Some(status) = requests.get(name).and_then(|request| request.status.clone()) {
            let conditions = status.conditions.unwrap_or_default();
            let bad = conditions.iter().find(|c| matches!(c.type_.as_str(), "Denied" | "Failed"));
            if let Some(bad) = bad {
                let message = bad.message.clone().unwrap_or_default();
                bail!("the request {name} was answered with {}: {message}", bad.type_);
            }
            if let Some(certificate) = status.certificate {
                return String::from_utf8(certificate.0).context("the certificate is no text");
            }
        }
        changes.next().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_joins_with_addresses_of_the_clusters_families() {
        for (ips, pods, expect) in [
            ("192.0.2.1 2001:db8::1", "10.42.0.0/16", "192.0.2.1"),
            ("192.0.2.1 2001:db8::1", "fd42::/56", "2001:db8::1"),
            ("192.0.2.1 2001:db8::1", "fd42::/56,10.42.0.0/16", "2001:db8::1 192.0.2.1"),
            (
                "192.0.2.1",
                "10.42.0.0/16,fd42::/56",
                "this Node has no IPv6 address, and Pods of the cluster have (10.42.0.0/16,fd42::/56); give one with \
                 --node-ip",
            ),
        ] {
            let ips: Vec<IpAddr> = ips.split(' ').map(|ip| ip.parse().unwrap()).collect();
            let found = of_cluster(&ips, pods.parse().unwrap());
            let text = |ips: Vec<IpAddr>| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            assert_eq!(found.map_or_else(|error| error.to_string(), text), expect, "{pods}");
        }
    }

    #[test]
    fn a_token_names_the_cluster_and_holds_the_proof() {
        let hash = "ab".repeat(32);
        let token = JoinToken::parse(&format!("K10{hash}::abcdef.0123456789abcdef")).unwrap();
        assert_eq!((token.authority_hash, token.bearer.as_str()), (hash.clone(), "abcdef.0123456789abcdef"));
        let wrong = [
            "abcdef.0123456789abcdef".to_owned(),
            format!("K10{hash}::server:secret"),
            "K10ab::abcdef.0123456789abcdef".to_owned(),
            format!("K10{hash}::abcdef"),
        ];
        for text in wrong {
            let error = JoinToken::parse(&text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("must have the form K10HASH::ID.SECRET"), "{text}: {error}");
        }
    }
}
