//! What the built-in image `knarr.local/hello` runs: an HTTP server that says which Pod answers.
//!
//! Two threads and no runtime: it is also the smallest Pod there is.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

const SIGNAL_STACK_BYTES: usize = 64 << 10;
const PORT: u16 = 8080;
/// A request's head may be this long.
const HEAD_BYTES_MAX: u64 = 16 << 10;
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until it is told to stop.
pub(crate) fn serve() -> ExitCode {
    if let Err(error) = end_on_sigterm() {
        eprintln!("hello: cannot listen for SIGTERM: {error}");
        return ExitCode::FAILURE;
    }
    let listener = match base::listen::blocking((Ipv4Addr::UNSPECIFIED, PORT).into()) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("hello: cannot listen on port {PORT}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let pod = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let pod = pod.or_else(|| nix::unistd::gethostname().ok()?.into_string().ok()).unwrap_or_default();
    println!("hello: {pod} listens on port {PORT}");
    for stream in listener.incoming() {
        if let Err(error) = stream.and_then(|stream| answer(stream, &pod)) {
            eprintln!("hello: {error}");
        }
    }
    ExitCode::SUCCESS
}

/// The first process of a container gets no default action: it must end itself.
fn end_on_sigterm() -> std::io::Result<()> {
    let mut terminate = SigSet::empty();
    terminate.add(Signal::SIGTERM);
    terminate.thread_block()?;
    std::thread::Builder::new().stack_size(SIGNAL_STACK_BYTES).spawn(move || {
        if terminate.wait().is_ok() {
            std::process::exit(0);
        }
    })?;
    Ok(())
}

fn answer(mut stream: TcpStream, pod: &str) -> std::io::Result<()> {
    use std::io::Read;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    let mut request = String::new();
    let mut head = BufReader::new(stream.try_clone()?.take(HEAD_BYTES_MAX));
    head.read_line(&mut request)?;
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let body = format!("hello from {pod}\n");
    let peer = base::listen::plain(stream.peer_addr()?);
    println!("{peer} {}", request.trim_end());
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
