//! What other ends say, whole, in pieces and broken, on a pipe.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// Why there is no answer.
#[derive(Debug)]
struct Broken(String);

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Self {
        Self(error.to_string())
    }
}

fn request() -> Request<Empty<Bytes>> {
    Request::get("/healthz").header("host", "pod").body(Empty::new()).unwrap()
}

/// An end that reads a request's head, says `said` and closes; the head.
async fn answer(mut end: DuplexStream, said: &[u8]) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(end.read_u8().await.unwrap());
    }
    // What nobody asked for is not read.
    end.write_all(said)
        .await
        .unwrap_or_else(|error| assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe));
    String::from_utf8(head).unwrap()
}

/// Status and body of what `said` is understood as.
async fn asked(said: &[u8]) -> Result<(u16, String), Broken> {
    let (near, far) = tokio::io::duplex(16);
    let read = async |response: Response<Incoming>| {
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let (head, result) = tokio::join!(answer(far, said), ask(near, request(), read));
    assert_eq!(head, "GET /healthz HTTP/1.1\r\nhost: pod\r\n\r\n");
    result
}

#[tokio::test]
async fn an_answer_is_read_to_its_end_though_the_other_end_has_closed() {
    let table: [(&[u8], u16, &str); 4] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, "ok"),
        (
            b"HTTP/1.0 503 No\r\n\r\nuntil it is closed, in more pieces than the pipe takes at once",
            503,
            "until it is closed, in more pieces than the pipe takes at once",
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", 200, "abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 nobody asked", 204, ""),
    ];
    for (said, status, body) in table {
        assert_eq!(asked(said).await.unwrap(), (status, body.to_owned()), "{}", said.escape_ascii());
    }
}

#[tokio::test]
async fn what_is_no_whole_answer_is_an_error() {
    let table: [(&[u8], &str); 5] = [
        (b"", "connection closed before message completed"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "connection closed before message completed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", "error reading a body from connection"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
            "error reading a body from connection",
        ),
        (b"SSH-2.0-server\r\n", "invalid HTTP version parsed"),
    ];
    for (said, why) in table {
        assert_eq!(asked(said).await.unwrap_err().0, why, "{}", said.escape_ascii());
    }
}

#[tokio::test]
async fn an_upgraded_connection_goes_on_and_ends_with_its_tasks() {
    let tasks = Tasks::new();
    let (near, far) = tokio::io::duplex(1024);
    let other_end = async {
        let mut far = far;
        let mut head = [0; 512];
        let read = far.read(&mut head).await.unwrap();
        assert!(head[..read].ends_with(b"\r\n\r\n"));
        far.write_all(b"HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await.unwrap();
        let mut word = [0; 4];
        far.read_exact(&mut word).await.unwrap();
        far.write_all(&word).await.unwrap();
        far
    };
    let upgrade = Request::get("/").header("connection", "upgrade").header("upgrade", "echo");
    let upgrade = upgrade.body(Empty::<Bytes>::new()).unwrap();
    let this_end = async {
        let response = send(near, upgrade, &tasks, "echo").await.unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        stream.write_all(b"ping").await.unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"ping");
    };
    let (mut far, ()) = tokio::join!(other_end, this_end);
    assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0, "nobody holds it any more");
    // One that never answers ends with the group.
    let (near, _silent) = tokio::io::duplex(1024);
    let waiting = send(near, request(), &tasks, "silent");
    let (ended, ()) = tokio::join!(waiting, tasks.stop_and_wait());
    assert!(ended.is_err());
}
