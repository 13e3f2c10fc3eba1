//! What the rows look at beside flags and modes: certificates, sockets, configurations.
//!
//! What lies in the control plane's folder is read as its user: root follows no path there.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};
use apiserver::audit::policy::Policy;
use cli::args::ServerArgs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{CERTIFICATES, Mode};
use crate::components::as_control_plane;
use crate::layout::Layout;

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) groups: Vec<String>,
    pub(super) ends_second: i64,
}

/// Those that are there and can be read.
pub(super) fn certificates(layout: &Layout) -> BTreeMap<&'static str, Certificate> {
    let found = CERTIFICATES.into_iter().filter_map(|file| {
        let pem = read(layout, file).ok()??;
        let encoded = CertificateDer::from_pem_slice(&pem).ok()?;
        let groups = auth::x509::user_of(&encoded).map(|user| user.groups).unwrap_or_default();
        let ends_second = *auth::x509::validity_of(&encoded)?.end();
        Some((file, Certificate { groups, ends_second }))
    });
    found.collect()
}

/// A file below the data directory; `None` if it is not there.
fn read(layout: &Layout, file: &str) -> Result<Option<Vec<u8>>> {
    let path = layout.root().join(file);
    let read = || match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        content => content.map(Some).with_context(|| format!("read {}", path.display())),
    };
    if file.starts_with("server/") { as_control_plane(read) } else { read() }
}

/// Where anything on this host takes connections over TCP.
pub(super) fn listening() -> Vec<SocketAddr> {
    let table = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    [table("/proc/net/tcp"), table("/proc/net/tcp6")].iter().flat_map(|table| listeners(table)).collect()
}

/// The rows of `/proc/net/tcp` or `tcp6` in state LISTEN (0A). Source: `get_tcp4_sock` of Linux.
fn listeners(table: &str) -> Vec<SocketAddr> {
    let rows = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let (address, port) = local.split_once(':').filter(|_| state == "0A")?;
        let port = u16::from_str_radix(port, 16).ok()?;
        // Words of 32 bits, each in the host's order.
        let word = |at: usize| {
            let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
            Some(word.to_ne_bytes())
        };
        let ip: IpAddr = match address.len() {
            8 => Ipv4Addr::from(word(0)?).into(),
            _ => {
                let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
                let bytes: [u8; 16] = words.try_into().ok()?;
                Ipv6Addr::from(bytes).to_canonical()
            }
        };
        Some(SocketAddr::new(ip, port))
    });
    rows.collect()
}

/// What this program speaks over TLS.
pub(super) fn ciphers() -> Vec<String> {
    let suites = rustls::crypto::ring::default_provider().cipher_suites;
    suites.iter().map(|suite| format!("{:?}", suite.suite())).collect()
}

/// The provider that encrypts new Secrets, by the configuration in force.
pub(super) fn encrypts(args: &ServerArgs, layout: &Layout) -> Option<Result<Option<&'static str>>> {
    let text = match &args.api_server.encryption_provider_config {
        Some(path) => std::fs::read(path).map(Some).with_context(|| format!("read {}", path.display())),
        None => read(layout, "server/cred/encryption-config.yaml"),
    };
    let parsed = |text: Vec<u8>| {
        let config = encryption::Config::parse(&text, false)?;
        Ok(config.writes("secrets"))
    };
    match text {
        Ok(text) => text.map(parsed),
        Err(error) => Some(Err(error)),
    }
}

/// Whether the audit policy has anything logged.
pub(super) fn audits(args: &ServerArgs) -> Result<bool> {
    let policy = match &args.api_server.audit_policy_file {
        None => Policy::by_default()?,
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            Policy::parse(&text)?
        }
    };
    Ok(policy.logs_anything())
}

/// The configurations of networks in the folder that is named.
pub(super) fn networks(args: &ServerArgs) -> Vec<(String, Mode)> {
    let Some(folder) = &args.container_runtime.cni_conf_dir else { return Vec::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let modes = entries.filter_map(|entry| {
        let is = entry.metadata().ok()?;
        Some((entry.path().display().to_string(), Mode { uid: is.uid(), mode: is.mode() & 0o7777 }))
    });
    modes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_is_read_as_the_kernel_writes_it() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 0100007F:2811 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1\n\
                     1: 00000000:2812 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1\n\
                     2: 00000000:2813 0100007F:2811 01 00000000:00000000 00:00000000 00000000 0 0 1 1\n\
                     3: 00000000000000000000000001000000:2814 00000000000000000000000000000000:0000 0A 0 0 0 0 0 1 1\n\
                     4: 0000000000000000FFFF00000100007F:2815 00000000000000000000000000000000:0000 0A 0 0 0 0 0 1 1\n";
        let found: Vec<String> = listeners(table).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1:10257", "0.0.0.0:10258", "[::1]:10260", "127.0.0.1:10261"]);
    }
}
