//! Names outside the cluster: the question goes to the host's resolvers as it came, one after the other.
//!
//! Bounded in time (every try has its limit) and in number (more questions than that at once are refused).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use hickory_proto::op::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const PORT: u16 = 53;
const TRY_MAX: Duration = Duration::from_secs(2);
const UPSTREAMS_MAX: usize = 3;
const CONCURRENT_MAX: usize = 512;
const MESSAGE_BYTES_MAX: usize = 65_535;

/// The resolvers of a `resolv.conf`, without `own` addresses: nobody asks himself.
pub fn upstreams(resolv_conf: &str, own: &[IpAddr]) -> Vec<SocketAddr> {
    let link = |name: &str| nix::net::if_::if_nametoindex(name).ok();
    resolvers(resolv_conf, link).filter(|server| !own.contains(&server.ip())).take(UPSTREAMS_MAX).collect()
}

/// All of them. `link` tells the number of a link of this host: an address such as `fe80::1%eth0` is one of that link.
fn resolvers<'a>(
    resolv_conf: &'a str,
    link: impl Fn(&str) -> Option<u32> + 'a,
) -> impl Iterator<Item = SocketAddr> + 'a {
    resolv_conf.lines().filter_map(move |line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        let word = words.next()?;
        let Some((address, zone)) = word.split_once('%') else {
            let ip: IpAddr = word.parse().ok()?;
            // Without a link nobody is there.
            let is_lone = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
            return (!is_lone).then(|| SocketAddr::new(ip.to_canonical(), PORT));
        };
        let zone = zone.parse().ok().or_else(|| link(zone)).filter(|zone| *zone != 0)?;
        Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, zone).into())
    })
}

/// Asks others.
#[derive(Debug)]
pub(crate) struct Forwarder {
    upstreams: Vec<SocketAddr>,
    running: Semaphore,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("there is nobody to ask")]
    Nobody,
    #[error("too many questions are being forwarded")]
    Busy,
    #[error("no upstream answered")]
    Unanswered,
}

impl Forwarder {
    pub(crate) fn new(upstreams: Vec<SocketAddr>) -> Self {
        Self { upstreams, running: Semaphore::new(CONCURRENT_MAX) }
    }

    /// The first usable answer to `question`.
    pub(crate) async fn ask(&self, question: &Message) -> Result<Message, ForwardError> {
        if self.upstreams.is_empty() {
            return Err(ForwardError::Nobody);
        }
        let _running = self.running.try_acquire().map_err(|_| ForwardError::Busy)?;
        let bytes = question.to_vec().map_err(|_| ForwardError::Unanswered)?;
        for upstream in &self.upstreams {
            match timeout(TRY_MAX, ask_one(*upstream, &bytes)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => tracing::debug!(%upstream, %error, "upstream failed"),
                Err(_) => tracing::debug!(%upstream, "upstream did not answer in time"),
            }
        }
        Err(ForwardError::Unanswered)
    }
}

async fn ask_one(upstream: SocketAddr, question: &[u8]) -> std::io::Result<Message> {
    let answer = ask_udp(upstream, question).await?;
    if !answer.metadata.truncation {
        return Ok(answer);
    }
    let mut stream = TcpStream::connect(upstream).await?;
    let length = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    Message::from_vec(&bytes).map_err(std::io::Error::other)
}

/// A socket of its own per question: its port is as hard to guess as the kernel makes it.
async fn ask_udp(upstream: SocketAddr, question: &[u8]) -> std::io::Result<Message> {
    let any: IpAddr =
        if upstream.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(upstream).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let Some(answer) = buffer.get(..length) else { continue };
        // Answers to someone else's question are not ours.
        if answer.get(..2) == question.get(..2) {
            return Message::from_vec(answer).map_err(std::io::Error::other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_are_the_name_servers_without_ourselves() {
        let text = "search example\nnameserver 127.0.0.53\n# nameserver 1.1.1.1\nnameserver 10.43.0.10\n\
                    nameserver fd43::a\nnameserver\noptions ndots:5\nnameserver 192.0.2.1\n\
                    nameserver 2001:db8::53\nnameserver 192.0.2.2\n";
        let own = ["10.43.0.10", "fd43::a"].map(|ip| ip.parse().unwrap());
        let found: Vec<String> = upstreams(text, &own).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.53:53", "192.0.2.1:53", "[2001:db8::53]:53"]);
        let lo = upstreams("nameserver fe80::1%lo", &[]);
        assert_eq!(lo, ["[fe80::1%1]:53".parse().unwrap()], "a link of this host is found by its name");
    }

    #[test]
    fn an_address_of_a_link_needs_the_link() {
        let link = |name: &str| (name == "eth0").then_some(7);
        for (server, expect) in [
            ("fe80::1%eth0", Some("[fe80::1%7]:53")),
            ("fe80::1%3", Some("[fe80::1%3]:53")),
            ("2001:db8::53%eth0", Some("[2001:db8::53%7]:53")),
            ("::ffff:192.0.2.1", Some("192.0.2.1:53")),
            ("::1", Some("[::1]:53")),
            ("fe80::1", None),
            ("fe80::1%", None),
            ("fe80::1%0", None),
            ("fe80::1%gone0", None),
            ("fe80::1%eth0%eth0", None),
            ("192.0.2.1%eth0", None),
            ("[2001:db8::53]", None),
            ("2001:db8::53/64", None),
        ] {
            let text = format!("nameserver {server}\n");
            let found: Vec<String> = resolvers(&text, link).map(|server| server.to_string()).collect();
            assert_eq!(found.first().map(String::as_str), expect, "{server}");
        }
    }

    #[tokio::test]
    async fn without_upstreams_the_answer_comes_at_once() {
        let error = Forwarder::new(Vec::new()).ask(&Message::query()).await.unwrap_err();
        assert!(matches!(error, ForwardError::Nobody));
    }
}
