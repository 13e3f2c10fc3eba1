//! Bare TCP between two network namespaces: clients that open connections, and one that sends as much as goes through.
//!
//! Threads and blocking sockets, so that next to nothing but the kernel's part is measured. Nobody waits for ever, and no
//! connection is left behind: the client ends each with a reset, which neither end has to remember.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::socket::{setsockopt, shutdown, sockopt};
use sys::netns::NetNs;

/// Longer nobody waits for the other end.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Given and taken at once.
const CHUNK_BYTES: usize = 128 << 10;

/// Takes all that a client sends, and answers the first byte and the end with a byte each; so many clients at a time.
pub(crate) struct Server {
    listener: TcpListener,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Server {
    /// Listens on `port` of all addresses of `namespace`.
    pub(crate) fn start(namespace: &NetNs, port: u16, clients: usize) -> Result<Self> {
        let listener = namespace.run(|| doing("listen", TcpListener::bind(("0.0.0.0", port))))?;
        let accepting = |_| {
            let listener = listener.try_clone()?;
            Ok(thread::spawn(move || accept(&listener)))
        };
        let threads = (0..clients).map(accepting).collect::<io::Result<_>>()?;
        Ok(Self { listener, threads })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whoever waits for a client is told that none comes any more.
        if shutdown(self.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both).is_ok() {
            self.threads.drain(..).for_each(|thread| thread.join().unwrap_or_default());
        }
    }
}

fn accept(listener: &TcpListener) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok((client, _)) = listener.accept() {
        // The client is the one that tells what went wrong.
        serve(client, &mut chunk).unwrap_or_default();
    }
}

fn serve(mut client: TcpStream, chunk: &mut [u8]) -> io::Result<()> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_nodelay(true)?;
    let mut is_first = true;
    while client.read(chunk)? > 0 {
        if std::mem::take(&mut is_first) {
            client.write_all(b"+")?;
        }
    }
    client.write_all(b".")
}

/// Has `clients` open `count` connections, one after the other each, from `namespace`: the next when the last has had its
/// first answer. Returns how long each took until then.
pub(crate) fn connections(
    namespace: &NetNs,
    to: SocketAddr,
    clients: usize,
    count: usize,
) -> Result<Vec<Duration>> {
    let each = || (0..count / clients).map(|_| connection(to)).collect::<sys::Result<Vec<_>>>();
    let all = namespace.run(|| {
        // Threads are where the one that starts them is.
        thread::scope(|scope| {
            let running: Vec<_> = (0..clients).map(|_| scope.spawn(each)).collect();
            let ended = running.into_iter().map(|client| client.join().unwrap_or_else(|_| Err(panicked())));
            ended.collect::<sys::Result<Vec<_>>>()
        })
    });
    Ok(all.context("open connections")?.concat())
}

fn connection(to: SocketAddr) -> sys::Result<Duration> {
    let began = Instant::now();
    let mut stream = connect(to)?;
    doing("ask", stream.write_all(b"?"))?;
    doing("read an answer", stream.read_exact(&mut [0]))?;
    let took = began.elapsed();
    let now = libc::linger { l_onoff: 1, l_linger: 0 };
    doing("end a connection", setsockopt(&stream, sockopt::Linger, &now).map_err(io::Error::from))?;
    Ok(took)
}

/// Sends so many bytes over one connection; returns when the other end has all of them.
pub(crate) fn stream(namespace: &NetNs, to: SocketAddr, bytes: usize) -> Result<Duration> {
    let sent = namespace.run(|| {
        let mut stream = connect(to)?;
        let chunk = vec![0; CHUNK_BYTES];
        let began = Instant::now();
        for _ in 0..bytes.div_ceil(CHUNK_BYTES) {
            doing("send", stream.write_all(&chunk))?;
        }
        doing("end a stream", stream.shutdown(Shutdown::Write))?;
        doing("read an answer", stream.read_exact(&mut [0; 2]))?;
        Ok(began.elapsed())
    });
    sent.context("send a stream")
}

fn connect(to: SocketAddr) -> sys::Result<TcpStream> {
    let stream = doing("connect", TcpStream::connect_timeout(&to, TIMEOUT))?;
    doing("set a time-out", stream.set_read_timeout(Some(TIMEOUT)))?;
    doing("set a time-out", stream.set_write_timeout(Some(TIMEOUT)))?;
    doing("set nodelay", stream.set_nodelay(true))?;
    Ok(stream)
}

fn doing<T>(what: &str, result: io::Result<T>) -> sys::Result<T> {
    result.map_err(|error| sys::Error::new(what, error))
}

fn panicked() -> sys::Error {
    sys::Error::new("open connections", io::Error::other("a client panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_answered_and_nobody_waits_for_a_server_that_is_gone() {
        let namespace = NetNs::anonymous().expect("run this as root");
        let server = Server::start(&namespace, 8080, 2).expect("listens");
        let to = SocketAddr::from(([127, 0, 0, 1], 8080));
        let took = connections(&namespace, to, 2, 10).expect("connects");
        assert_eq!(took.len(), 10);
        assert!(stream(&namespace, to, 3 * CHUNK_BYTES).expect("sends") > Duration::ZERO);
        drop(server);
        let error = connections(&namespace, to, 2, 2).expect_err("nobody listens");
        assert!(format!("{error:#}").contains("Connection refused"), "{error:#}");
        assert!(stream(&namespace, to, 1).is_err());
    }
}
