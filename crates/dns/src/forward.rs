//! Names outside of the zone: asked of the configured resolvers, in order, over UDP and, when that was cut short,
//! over TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// One resolver may take this long.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const UDP_BYTES_MAX: usize = 4096;

/// Asks `resolvers` one after the other; `None` if none of them answers.
pub(crate) async fn ask(resolvers: &[SocketAddr], query: &[u8]) -> Option<Message> {
    for resolver in resolvers {
        match tokio::time::timeout(ANSWER_MAX, exchange(*resolver, query)).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => tracing::debug!(%resolver, %error, "a resolver failed"),
            Err(_) => tracing::debug!(%resolver, "a resolver did not answer in time"),
        }
    }
    None
}

async fn exchange(resolver: SocketAddr, query: &[u8]) -> std::io::Result<Message> {
    let any: IpAddr =
        if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    socket.send(query).await?;
    let mut answer = vec![0; UDP_BYTES_MAX];
    loop {
        let length = socket.recv(&mut answer).await?;
        let bytes = answer.get(..length).unwrap_or_default();
        // Anything else on this port is not an answer to this question.
        if bytes.get(..2) != query.get(..2) {
            continue;
        }
        let message = parse(bytes)?;
        if !message.metadata.truncation {
            return Ok(message);
        }
        return exchange_tcp(resolver, query).await;
    }
}

async fn exchange_tcp(resolver: SocketAddr, query: &[u8]) -> std::io::Result<Message> {
    let mut stream = TcpStream::connect(resolver).await?;
    let length = u16::try_from(query.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    parse(&answer)
}

fn parse(bytes: &[u8]) -> std::io::Result<Message> {
    Message::from_vec(bytes).map_err(std::io::Error::other)
}
