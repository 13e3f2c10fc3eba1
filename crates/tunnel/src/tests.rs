//! Both ends against each other, and each against whoever speaks something else, too much, or nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Empty;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::agent::{Guard, serve};
use crate::destinations::Refusal;
use crate::*;

/// Everything may wait so long, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
const LINK_BYTES: usize = 64 << 10;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Lets everything through to one place, apart from one name.
struct To(SocketAddr);

impl Guard for To {
    fn find(&self, host: &str, _: u16) -> Result<SocketAddr, Refusal> {
        if host == "outside" { Err(Refusal::Elsewhere) } else { Ok(self.0) }
    }
}

/// A tunnel, and the tasks at its two ends.
struct Both {
    tunnel: Tunnel,
    server: JoinHandle<hyper::Result<()>>,
    agent: JoinHandle<hyper::Result<()>>,
}

async fn between(near: DuplexStream, far: DuplexStream, to: SocketAddr) -> Both {
    let agent = tokio::spawn(async move { serve(TokioIo::new(far), Arc::new(To(to)), &Tasks::new()).await });
    let (tunnel, carrying) = Tunnel::over(TokioIo::new(near), &Tasks::new()).await.unwrap();
    Both { tunnel, server: tokio::spawn(carrying), agent }
}

async fn both(to: SocketAddr) -> Both {
    let (near, far) = duplex(LINK_BYTES);
    between(near, far, to).await
}

/// Serves every connection by what its first byte says.
async fn backend() -> (SocketAddr, watch::Receiver<Option<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stalled, is_stalled) = watch::channel(None);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(behave(stream, stalled.clone()));
        }
    });
    (address, is_stalled)
}

async fn behave(mut stream: TcpStream, stalled: watch::Sender<Option<u64>>) {
    let Ok(first) = stream.read_u8().await else { return };
    match first {
        // Reads all, and then says how much that was.
        b'c' => {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(all.len().to_string().as_bytes()).await.unwrap();
        }
        // Writes until nobody takes it any more, and says how much was taken.
        b'f' => {
            let (block, mut taken) = (vec![7; 32 << 10], 0_u64);
            while let Ok(Ok(count)) = timeout(Duration::from_millis(500), stream.write(&block)).await {
                taken += u64::try_from(count).unwrap();
            }
            stalled.send_replace(Some(taken));
            std::future::pending::<()>().await;
        }
        // Says that it is there, and when the other end has gone.
        _ => {
            stream.write_u8(first).await.unwrap();
            let ended = stream.read(&mut [0; 16]).await;
            stalled.send_replace(Some(u64::try_from(ended.unwrap_or(0)).unwrap()));
        }
    }
}

async fn count(tunnel: &Tunnel, bytes: usize) -> String {
    let mut stream = tunnel.connect("10.42.1.9", 80).await.unwrap();
    stream.write_all(b"c").await.unwrap();
    stream.write_all(&vec![1; bytes]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn bytes_pass_both_ways_and_so_does_an_end() {
    let (address, _) = backend().await;
    let Both { tunnel, .. } = both(address).await;
    assert_eq!(count(&tunnel, 3 << 20).await, (3 << 20).to_string());
    let many = futures_of(20, |_| count(&tunnel, 100_000)).await;
    assert!(many.iter().all(|text| text == "100000"), "{many:?}");
}

async fn futures_of<F: Future<Output = T>, T>(count: usize, make: impl Fn(usize) -> F) -> Vec<T> {
    let mut all: Vec<_> = (0..count).map(|n| Box::pin(make(n))).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        all.retain_mut(|one| match one.as_mut().poll(context) {
            std::task::Poll::Ready(found) => {
                done.push(found);
                false
            }
            std::task::Poll::Pending => true,
        });
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

#[tokio::test]
async fn streams_that_nobody_reads_take_little_and_hold_no_other_up() {
    let (address, mut stalled) = backend().await;
    let Both { tunnel, .. } = both(address).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        let mut stream = tunnel.connect("10.42.1.9", 80).await.unwrap();
        stream.write_all(b"f").await.unwrap();
        unread.push(stream);
    }
    let stopped = timeout(TIMEOUT, stalled.wait_for(Option::is_some)).await.unwrap();
    let taken = stopped.unwrap().unwrap();
    // A window, and what the kernel keeps for the two ends of a connection on one host.
    assert!((1..32 << 20).contains(&taken), "{taken} bytes");
    assert_eq!(timeout(TIMEOUT, count(&tunnel, 2 << 20)).await.unwrap(), (2 << 20).to_string());
}

#[tokio::test]
async fn there_are_so_many_streams_and_no_more() {
    let (address, _) = backend().await;
    let Both { tunnel, .. } = both(address).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        open.push(tunnel.connect("10.42.1.9", 80).await.unwrap());
    }
    assert_eq!(tunnel.streams(), STREAMS_MAX);
    let refused = tunnel.connect("10.42.1.9", 80).await.unwrap_err();
    assert_eq!(refused.to_string(), "too many connections through the node's tunnel");
    drop(open);
    assert_eq!(tunnel.streams(), 0);
    // The agent's end learns of it a little later.
    let again = async {
        while tunnel.connect("10.42.1.9", 80).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, again).await.unwrap();
}

#[tokio::test]
async fn what_keeps_a_connection_from_being_made_is_told() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let Both { tunnel, .. } = both(gone).await;
    let check = async |host: &str, kind: io::ErrorKind, text: &str| {
        let error = tunnel.connect(host, 80).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, text), "{host}");
    };
    check("10.42.1.9", io::ErrorKind::ConnectionRefused, "connection refused").await;
    check("outside", io::ErrorKind::PermissionDenied, "the node's agent does not connect there").await;
    check("fd42::9", io::ErrorKind::ConnectionRefused, "connection refused").await;
    let wrong = tunnel.connect("no host", 80).await.unwrap_err();
    assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(tunnel.streams(), 0);
}

#[tokio::test]
async fn what_goes_through_a_tunnel_ends_with_it() {
    let (address, mut ended) = backend().await;
    let Both { tunnel, server, agent } = both(address).await;
    let mut stream = tunnel.connect("10.42.1.9", 80).await.unwrap();
    stream.write_all(b"w").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'w');
    server.abort();
    let left = timeout(TIMEOUT, stream.read(&mut [0; 16])).await.unwrap();
    assert!(matches!(left, Ok(0) | Err(_)), "{left:?}");
    timeout(TIMEOUT, ended.wait_for(Option::is_some)).await.unwrap().unwrap();
    timeout(TIMEOUT, agent).await.unwrap().unwrap().ok();
    let refused = tunnel.connect("10.42.1.9", 80).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::NotConnected);
}

#[tokio::test(start_paused = true)]
async fn both_ends_notice_that_the_other_is_gone_without_a_word() {
    let ((near, one), (other, far)) = (duplex(LINK_BYTES), duplex(LINK_BYTES));
    let Both { tunnel, server, agent } = between(near, far, "127.0.0.1:1".parse().unwrap()).await;
    let (mut one, mut other) = (one, other);
    let mut copied = Box::pin(tokio::io::copy_bidirectional(&mut one, &mut other));
    // It stands for as long as both are there, though nobody uses it.
    assert!(timeout(Duration::from_secs(3600), &mut copied).await.is_err());
    assert!(!server.is_finished() && !agent.is_finished());
    // The link is there and carries nothing.
    drop(copied);
    let begun = Instant::now();
    assert!(server.await.unwrap().is_err());
    assert!(agent.await.unwrap().is_err());
    let most = PING_EVERY + PING_MAX + Duration::from_secs(1);
    assert!(begun.elapsed() <= most, "{:?}", begun.elapsed());
    assert_eq!(tunnel.connect("10.42.1.9", 80).await.unwrap_err().kind(), io::ErrorKind::NotConnected);
    drop((one, other));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_not_waited_for() {
    let (near, far) = duplex(LINK_BYTES);
    let silent =
        service_fn(|_| std::future::pending::<Result<Response<Empty<Bytes>>, std::convert::Infallible>>());
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::spawn(builder.max_concurrent_streams(3).serve_connection(TokioIo::new(far), silent));
    let (tunnel, carrying) = Tunnel::over(TokioIo::new(near), &Tasks::new()).await.unwrap();
    tokio::spawn(carrying);
    // Those that the other end does not even take wait no longer.
    let all = futures_of(10, |_| tunnel.connect("10.42.1.9", 80)).await;
    assert!(all.iter().all(|one| one.as_ref().unwrap_err().kind() == io::ErrorKind::TimedOut), "{all:?}");
    assert_eq!(tunnel.streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_measure_is_no_connection() {
    for (status, size) in [(200, 64 << 10), (502, 64 << 10), (502, 10), (204, 0), (301, 0)] {
        let (near, far) = duplex(LINK_BYTES);
        let large = service_fn(move |_| async move {
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert(REASON, "x".repeat(size).parse().unwrap());
            Ok::<_, std::convert::Infallible>(response)
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(far), large));
        let (tunnel, carrying) = Tunnel::over(TokioIo::new(near), &Tasks::new()).await.unwrap();
        tokio::spawn(carrying);
        assert!(tunnel.connect("10.42.1.9", 80).await.is_err(), "{status} {size}");
    }
}

/// What is no HTTP/2, or none that may be.
fn garbage() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |length: u32, kind: u8, stream: u32, payload: &[u8]| {
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        [SETTINGS, &bytes].concat()
    };
    let noise: Vec<u8> = (0..64_u32 << 10).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    vec![
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n".to_vec()),
        ("noise", noise.clone()),
        ("noise after settings", [SETTINGS, &noise].concat()),
        ("a frame without measure", frame(0x00ff_ffff, 0, 1, &noise)),
        ("data of no stream", frame(1, 0, 0, b"x")),
        ("settings of a stream", frame(0, 4, 1, b"")),
        ("a window of nothing", frame(4, 8, 0, &[0; 4])),
        ("a ping that is too long", frame(9, 6, 0, &[0; 9])),
        ("a continuation of nothing", frame(1, 9, 1, b"x")),
    ]
}

#[tokio::test(start_paused = true)]
async fn garbage_ends_the_servers_end_and_nothing_else() {
    for (name, bytes) in garbage() {
        let (near, mut far) = duplex(LINK_BYTES);
        let (tunnel, carrying) = Tunnel::over(TokioIo::new(near), &Tasks::new()).await.unwrap();
        let carrying = tokio::spawn(carrying);
        let sent = tokio::spawn(async move {
            far.write_all(&bytes).await.ok();
            far.read_to_end(&mut Vec::new()).await.ok();
        });
        assert!(tunnel.connect("10.42.1.9", 80).await.is_err(), "{name}");
        assert!(timeout(TIMEOUT, carrying).await.unwrap().unwrap().is_err(), "{name}");
        timeout(TIMEOUT, sent).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_ends_the_agents_end_and_nothing_else() {
    for (name, bytes) in garbage().into_iter().flat_map(|(name, bytes)| {
        let after = [PREFACE, &bytes].concat();
        [(name, bytes), (name, after)]
    }) {
        let (mut near, far) = duplex(LINK_BYTES);
        let guard = Arc::new(To("127.0.0.1:1".parse().unwrap()));
        let agent = tokio::spawn(async move { serve(TokioIo::new(far), guard, &Tasks::new()).await });
        let sent = tokio::spawn(async move {
            near.write_all(&bytes).await.ok();
            near.read_to_end(&mut Vec::new()).await.ok();
        });
        assert!(timeout(TIMEOUT, agent).await.unwrap().unwrap().is_err(), "{name}");
        timeout(TIMEOUT, sent).await.unwrap().unwrap();
    }
}
