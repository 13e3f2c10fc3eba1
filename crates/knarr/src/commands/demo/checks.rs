//! How the demo asks the cluster: HTTP at an address, an address by DNS, and the end of a container's process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// How long a client waits that was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);
const ANSWER_MAX: Duration = Duration::from_secs(5);
const BODY_BYTES_MAX: u64 = 64 << 10;

/// The body that `GET /` gets from `address`.
pub(crate) async fn http_get(address: SocketAddr) -> Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: hello\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.take(BODY_BYTES_MAX).read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(ANSWER_MAX, ask).await.context("no answer in time")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("the answer is {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.trim().to_owned())
}

/// As [`http_get`], of a Service: a moment after its Pods are Ready its rules lead to them, and until then it is refused.
pub(crate) async fn http_get_once_open(address: SocketAddr) -> Result<String> {
    loop {
        match http_get(address).await {
            Err(error) if is_refused(&error) => tokio::time::sleep(REFUSED_PAUSE).await,
            asked => return asked,
        }
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// The first IPv4 address of `name`, asked of `server`. Source: RFC 1035.
pub(crate) async fn resolve(server: IpAddr, name: &str) -> Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect((server, 53)).await?;
    let ask = async {
        socket.send(&query(name)).await?;
        let mut answer = vec![0; 512];
        let length = socket.recv(&mut answer).await?;
        answer.truncate(length);
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(ANSWER_MAX, ask).await.context("DNS does not answer in time")??;
    first_address(&answer, name).with_context(|| format!("DNS has no address for {name}"))
}

/// A question for an A record.
fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(question(name));
    query
}

fn question(name: &str) -> Vec<u8> {
    let mut question = Vec::new();
    for label in name.trim_end_matches('.').split('.') {
        question.push(u8::try_from(label.len()).unwrap_or(63));
        question.extend_from_slice(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    question
}

/// Reads the first answer record, which follows the question.
fn first_address(answer: &[u8], name: &str) -> Option<IpAddr> {
    let records = u16::from_be_bytes([*answer.get(6)?, *answer.get(7)?]);
    if records == 0 {
        return None;
    }
    let mut at = 12 + question(name).len();
    // The record's name: a pointer, or labels up to an empty one.
    while *answer.get(at)? != 0 && *answer.get(at)? < 0xc0 {
        at += 1 + usize::from(*answer.get(at)?);
    }
    at += if *answer.get(at)? >= 0xc0 { 2 } else { 1 };
    let is_a = answer.get(at..at + 2)? == [0, 1] && answer.get(at + 8..at + 10)? == [0, 4];
    let address: [u8; 4] = answer.get(at + 10..at + 14)?.try_into().ok()?;
    is_a.then(|| IpAddr::from(address))
}

/// Kills the container's first process, as a crash would; returns its process id.
pub(crate) fn kill_container(container_id: &str) -> Result<i32> {
    let id = container_id.rsplit("://").next().unwrap_or(container_id);
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let cgroup = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if cgroup.contains(id) {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)?;
            return Ok(pid);
        }
    }
    bail!("container {id} has no process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_behind_its_question() {
        let mut answer = query("a.b");
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 43, 0, 7]);
        assert_eq!(first_address(&answer, "a.b"), Some(IpAddr::from([10, 43, 0, 7])));
        assert_eq!(first_address(&query("a.b"), "a.b"), None);
    }
}
