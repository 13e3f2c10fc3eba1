//! The cluster's authorities, each for one purpose: the API's serving certificate, clients of the API and of kubelets,
//! kubelets' serving certificates, and front proxies. What one of them has signed proves nothing elsewhere.
//!
//! The first is what kubeconfigs, Pods and join tokens know. A cluster from before there were four had this one for
//! clients too; what it had signed until then is believed until the last of it has ended, and it signs no client's
//! certificate any more. See `docs/adr/0015-authorities.md`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use auth::issuing::{Signer, Signers};
use auth::pki::{self, Authority};
use jiff::Timestamp;

/// Whose certificates the kubelet believes, in the agent's folder.
pub(super) const KUBELET_CLIENT_CA: &str = "client-ca.crt";

/// Who signs the API's serving certificate.
pub(super) const SERVING: &str = "ca";
const CLIENTS: &str = "client-ca";
const KUBELET_SERVING: &str = "kubelet-serving-ca";
const FRONT_PROXY: &str = "front-proxy-ca";
/// Whose certificates clients may show: [`CLIENTS`], and what came before it.
const BUNDLE: &str = "client-ca-bundle.crt";
/// What was signed before there was [`CLIENTS`] has ended by then: a year, and a day for clocks.
const TRANSITION_SECONDS: i64 = 366 * 24 * 3600;

/// The files of all, below the server's folder, and how the control plane may read them.
pub(crate) const FILES: [(&str, u32); 9] = [
    ("tls/ca.crt", 0o644),
    ("tls/ca.key", 0o600),
    ("tls/client-ca.crt", 0o644),
    ("tls/client-ca.key", 0o600),
    ("tls/client-ca-bundle.crt", 0o644),
    ("tls/kubelet-serving-ca.crt", 0o644),
    ("tls/kubelet-serving-ca.key", 0o600),
    ("tls/front-proxy-ca.crt", 0o644),
    ("tls/front-proxy-ca.key", 0o600),
];

/// All four, with their keys.
pub(super) struct Authorities {
    pub(super) serving: Authority,
    pub(super) clients: Authority,
    pub(super) kubelet_serving: Authority,
    pub(super) front_proxy: Authority,
}

impl Authorities {
    /// Reads them in `tls`, or makes those that are absent.
    ///
    /// # Errors
    /// If something cannot be read or written.
    pub(super) fn load_or_create(tls: &Path, now: Timestamp) -> Result<Self> {
        let (bundle, former) = (tls.join(BUNDLE), tls.join("ca.crt"));
        let clients = Authority::named(tls, CLIENTS, now)?;
        if !bundle.exists() {
            // The authority of the API comes last, so that a new cluster that was cut off here is no old one.
            let before = match former.exists() {
                true => std::fs::read_to_string(&former).context("read tls/ca.crt")?,
                false => String::new(),
            };
            pki::write_file(&bundle, format!("{}{before}", clients.certificate_pem()).as_bytes(), 0o644)?;
        }
        let kubelet_serving = Authority::named(tls, KUBELET_SERVING, now)?;
        let front_proxy = Authority::named(tls, FRONT_PROXY, now)?;
        let serving = Authority::named(tls, SERVING, now)?;
        Ok(Self { serving, clients, kubelet_serving, front_proxy })
    }
}

/// Whose certificates clients may show now, PEM.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn client_bundle(tls: &Path, now: Timestamp) -> Result<String> {
    let clients = read(tls, "client-ca.crt")?;
    if is_in_transition(&clients, now) { read(tls, BUNDLE) } else { Ok(clients) }
}

/// Whether the cluster believes certificates from before there was an authority of clients.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn has_former_clients(tls: &Path, now: Timestamp) -> Result<bool> {
    Ok(client_bundle(tls, now)? != read(tls, "client-ca.crt")?)
}

fn is_in_transition(clients_pem: &str, now: Timestamp) -> bool {
    pki::begins_at(clients_pem).is_some_and(|begin| now.as_second() - begin < TRANSITION_SECONDS)
}

/// Who signs requests. Certificates for the API's own name are signed for nobody.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn signers(tls: &Path) -> Result<Signers> {
    let signer = |name: &str| -> Result<Arc<Signer>> {
        let (certificate, key) = (read(tls, &format!("{name}.crt"))?, read(tls, &format!("{name}.key"))?);
        Ok(Arc::new(Signer::new(&certificate, &key).with_context(|| format!("read the authority {name}"))?))
    };
    let (clients, kubelets) = (signer(CLIENTS)?, signer(KUBELET_SERVING)?);
    Ok(Signers {
        client: Some(clients.clone()),
        kubelet_client: Some(clients.clone()),
        kubelet_serving: Some(kubelets),
        legacy_unknown: Some(clients),
    })
}

/// A file of `tls`, as text.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(tls: &Path, name: &str) -> Result<String> {
    std::fs::read_to_string(tls.join(name)).with_context(|| format!("read tls/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 24 * 3600).unwrap()
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("knarr-authorities-{name}-{}", std::process::id()));
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        folder
    }

    #[test]
    fn a_new_cluster_never_believes_the_apis_authority_of_clients() {
        let tls = folder("new");
        let all = Authorities::load_or_create(&tls, at(0)).unwrap();
        assert_eq!(client_bundle(&tls, at(0)).unwrap(), all.clients.certificate_pem());
        assert!(!has_former_clients(&tls, at(0)).unwrap());
        // Cut off before the last file: what comes next is still a new cluster.
        for name in ["ca.crt", "ca.key", "front-proxy-ca.crt"] {
            std::fs::remove_file(tls.join(name)).unwrap();
        }
        Authorities::load_or_create(&tls, at(1)).unwrap();
        assert!(!has_former_clients(&tls, at(1)).unwrap());
        std::fs::remove_dir_all(tls).unwrap();
    }

    #[test]
    fn an_old_cluster_believes_its_authority_of_clients_until_what_it_has_signed_has_ended() {
        let tls = folder("old");
        let old = Authority::load_or_create(&tls, at(0)).unwrap();
        let all = Authorities::load_or_create(&tls, at(30)).unwrap();
        assert_eq!(all.serving.certificate_pem(), old.certificate_pem());
        let both = format!("{}{}", all.clients.certificate_pem(), old.certificate_pem());
        assert_eq!(client_bundle(&tls, at(30)).unwrap(), both);
        Authorities::load_or_create(&tls, at(200)).unwrap();
        assert_eq!(client_bundle(&tls, at(395)).unwrap(), both, "one of day 30 ends at day 395");
        assert_eq!(client_bundle(&tls, at(397)).unwrap(), all.clients.certificate_pem());
        std::fs::remove_dir_all(tls).unwrap();
    }
}
