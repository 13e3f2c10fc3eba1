//! Real etcd members (Debian's etcd-server) that a test can kill, stop, cut off and start again.

mod pretender;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;

use crate::lan::{self, Lan};

pub use pretender::pretend;

/// A cluster; it ends with this.
#[derive(Debug)]
pub struct Etcd<'a> {
    members: Vec<Member>,
    tls: Option<Tls>,
    flags: Vec<String>,
    lan: Option<&'a Lan>,
    data: TempDir,
}

#[derive(Debug)]
struct Member {
    /// For clients.
    url: String,
    /// For the other members.
    peer: String,
    process: Option<Child>,
}

/// Files in PEM: whom to trust, and who a client is.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// A client's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The connections that are safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// None.
    Plain,
    /// Those of clients and of members, both sides with certificates.
    Tls,
}

impl<'a> Etcd<'a> {
    /// Members on loopback.
    ///
    /// # Errors
    /// If etcd cannot be started.
    pub fn on_loopback(count: u8, security: Security, flags: &[&str]) -> Result<Self> {
        let hosts: Vec<_> = (0..count).map(|_| own_address()).collect();
        let address = |port: u16| move |host: &Ipv4Addr| format!("{host}:{port}");
        let addresses = hosts.iter().map(address(2379)).chain(hosts.iter().map(address(2380))).collect();
        Self::start_all(addresses, security, flags, None)
    }

    /// Members on the first hosts of a wire, one on each.
    ///
    /// # Errors
    /// If etcd cannot be started.
    pub fn on_hosts(lan: &'a Lan, count: u8, security: Security, flags: &[&str]) -> Result<Self> {
        let address = |port: u16| move |number: u8| format!("{}:{port}", lan::ip(number));
        let addresses = (0..count).map(address(2379)).chain((0..count).map(address(2380))).collect();
        Self::start_all(addresses, security, flags, Some(lan))
    }

    /// The first half of `addresses` is for clients, the second for members.
    fn start_all(
        addresses: Vec<String>,
        security: Security,
        flags: &[&str],
        lan: Option<&'a Lan>,
    ) -> Result<Self> {
        let data = tempfile::Builder::new().prefix("knarr-etcd-").tempdir()?;
        let count = addresses.len() / 2;
        let hosts = addresses.iter().take(count).filter_map(|a| Some(a.split_once(':')?.0.to_owned()));
        let tls = match security {
            Security::Plain => None,
            Security::Tls => Some(Tls::make(data.path(), hosts.collect())?),
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = |address: &String| format!("{scheme}://{address}");
        let (clients, peers) = addresses.split_at(count);
        let members = clients.iter().zip(peers).map(|(client, peer)| Member {
            url: url(client),
            peer: url(peer),
            process: None,
        });
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut etcd = Self { members: members.collect(), tls, flags, lan, data };
        for number in 0..count {
            etcd.start(number)?;
        }
        Ok(etcd)
    }

    /// The URLs by which clients find the members.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// The keys that clients need, if connections are safe.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Starts a member, with what it had before if it ran before.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, number: usize) -> Result<()> {
        let (name, member) = (format!("m{number}"), &self.members[number]);
        let all = self.members.iter().enumerate().map(|(n, member)| format!("m{n}={}", member.peer));
        let mut command = match self.lan {
            Some(lan) => lan.command(Some(u8::try_from(number)?), "etcd"),
            None => Command::new("etcd"),
        };
        command.arg("--name").arg(&name).arg("--data-dir").arg(self.data.path().join(&name));
        command.args(["--listen-client-urls", &member.url, "--advertise-client-urls", &member.url]);
        command.args(["--listen-peer-urls", &member.peer, "--initial-advertise-peer-urls", &member.peer]);
        command.args(["--initial-cluster", &all.collect::<Vec<_>>().join(","), "--log-level", "error"]);
        command.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]).args(&self.flags);
        if let Some(tls) = &self.tls {
            let (certificate, key) =
                (self.data.path().join("member.crt"), self.data.path().join("member.key"));
            for side in ["", "peer-"] {
                command.arg(format!("--{side}client-cert-auth"));
                command.arg(format!("--{side}trusted-ca-file")).arg(&tls.authority);
                command.arg(format!("--{side}cert-file")).arg(&certificate);
                command.arg(format!("--{side}key-file")).arg(&key);
            }
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.data.path().join(format!("{name}.log")))?;
        command.stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().context("start etcd: the Debian package etcd-server is needed")?;
        self.members[number].process = Some(process);
        Ok(())
    }

    /// Ends a member as a crash would; no error if it has ended.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        if let Some(mut process) = self.members[number].process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Stops a member where it stands, as a disk that hangs does; connections stay.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGCONT)
    }

    /// A member's process.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pid(&self, number: usize) -> Result<u32> {
        let process = self.members[number].process.as_ref().context("the member does not run")?;
        Ok(process.id())
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid(number)?)?), signal)?)
    }

    /// The member that leads now, as those of `asked` see it who answer.
    ///
    /// # Errors
    /// If none of them knows.
    pub fn leader(&self) -> Result<usize> {
        for number in 0..self.members.len() {
            let Ok(status) = self.etcdctl(number, &["endpoint", "status", "--write-out", "fields"]) else {
                continue;
            };
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(&format!("\"{name}\"")))?;
                Some(line.rsplit(':').next()?.trim().to_owned())
            };
            if field("Leader").is_some_and(|leader| Some(leader) == field("MemberID")) {
                return Ok(number);
            }
        }
        bail!("no member leads")
    }

    /// Runs `etcdctl` against one member; answers what it printed.
    ///
    /// # Errors
    /// If it fails.
    pub fn etcdctl(&self, number: usize, args: &[&str]) -> Result<String> {
        let mut command = match self.lan {
            Some(lan) => lan.command(None, "etcdctl"),
            None => Command::new("etcdctl"),
        };
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.members[number].url]);
        command.args(["--dial-timeout=1s", "--command-timeout=5s"]).args(args);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.authority);
            command.arg("--cert").arg(&tls.certificate).arg("--key").arg(&tls.key);
        }
        let output =
            command.stdin(Stdio::null()).output().context("the Debian package etcd-client is needed")?;
        if !output.status.success() {
            bail!("etcdctl {args:?}: {}", crate::cluster::text(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// An address of loopback that no other member has, of this process or of one beside it: a port that is free is anybody's
/// until etcd listens there.
fn own_address() -> Ipv4Addr {
    static GIVEN: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 1 + GIVEN.fetch_add(1, Ordering::Relaxed) % 254, high, low)
}

impl Drop for Etcd<'_> {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            if std::thread::panicking() {
                let log = self.data.path().join(format!("m{number}.log"));
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let tail = &lines[lines.len().saturating_sub(10)..];
                eprintln!("the end of etcd m{number}'s log:\n{}", tail.join("\n"));
            }
            if let Err(error) = self.kill(number) {
                eprintln!("etcd m{number} did not end: {error:#}");
            }
        }
    }
}

impl Tls {
    /// An authority, and certificates for the members at `hosts` and for a client.
    fn make(dir: &Path, hosts: Vec<String>) -> Result<Self> {
        let mut authority = CertificateParams::new([])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        std::fs::write(dir.join("ca.crt"), authority.pem())?;
        for name in ["member", "client"] {
            let mut params = CertificateParams::new(hosts.clone())?;
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &authority)?;
            std::fs::write(dir.join(format!("{name}.crt")), certificate.pem())?;
            std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem())?;
        }
        let path = |name: &str| dir.join(name);
        Ok(Self { authority: path("ca.crt"), certificate: path("client.crt"), key: path("client.key") })
    }
}
