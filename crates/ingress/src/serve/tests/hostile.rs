//! What clients and backends do that mean no good, or are broken.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::backends::{backend, telling, writing};
use super::client::{DEADLINE, get, h2c, raw, rest, status};
use super::*;

#[tokio::test]
async fn what_two_readers_could_understand_in_two_ways_is_refused() {
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    let rows = [
        ("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "400"),
        ("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: +5\r\n\r\nhello", "400"),
        ("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5, 6\r\n\r\nhello!", "400"),
        ("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip\r\n\r\nhello", "400"),
        (
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            "400",
        ),
        ("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400"),
        ("POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a.example\r\n folded: x\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n", "400"),
        ("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a.example\r\nX: a\0b\r\n\r\n", "400"),
        ("GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", "400"),
        ("GET / HTTP/3.1\r\nHost: a.example\r\n\r\n", "400"),
        ("GET /../admin HTTP/1.1\r\nHost: a.example\r\n\r\n", "400"),
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "405"),
        ("TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n", "405"),
    ];
    for (request, expected) in rows {
        assert_eq!(status(&raw(running.http, request).await), expected, "{request:?}");
    }
    assert_eq!(one.connections.load(Ordering::Relaxed), 0, "no backend has seen any of it");
}

/// Both lengths at once: there is one request, framed anew, and what came after it is never another one's.
#[tokio::test]
async fn nothing_is_smuggled_behind_two_lengths() {
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    for lengths in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nConnection: content-length\r\n",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\n{lengths}\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: other.example\r\n\r\n"
        );
        let answers = raw(running.http, request).await;
        assert!(!answers.contains("GET /hidden"), "{answers}");
        assert!(!answers.contains("content-length: 4\n"), "{answers}");
    }
}

/// HTTP/2 has lengths of its own; a header that says otherwise is no message.
#[tokio::test]
async fn a_length_that_is_not_the_bodys_does_not_reach_a_backend() {
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    let mut sender = h2c(running.http).await;
    let request = Request::post("http://a.example/")
        .header("content-length", "2")
        .body(Full::from(Bytes::from_static(b"hello GET /hidden HTTP/1.1\r\n\r\n")))
        .unwrap();
    let told = match sender.send_request(request).await {
        Ok(answer) => answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
        Err(_) => Bytes::new(),
    };
    assert!(!String::from_utf8_lossy(&told).contains("hidden"), "{told:?}");
    assert_eq!(status(&get(running.http, "a.example", "/").await), "200");
}

#[tokio::test]
async fn heads_are_bounded() {
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    let head = |more: String| format!("GET / HTTP/1.1\r\nHost: a.example\r\n{more}\r\n");
    let many = head((0..200).map(|number| format!("X-{number}: 1\r\n")).collect());
    let large = head(format!("X-Large: {}\r\n", "x".repeat(80 << 10)));
    let long = format!("GET /{} HTTP/1.1\r\nHost: a.example\r\n\r\n", "x".repeat(80 << 10));
    for request in [many, large, long] {
        let answer = raw(running.http, &request).await;
        // A client that is still writing may see the connection cut instead of what was answered.
        assert!(["431", "414", ""].contains(&status(&answer)), "{answer}");
    }
    assert_eq!(one.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn whoever_is_slow_is_not_waited_for() {
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    for beginning in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        for address in [running.http, running.https] {
            // The end comes by itself.
            raw(address, beginning).await;
        }
    }
    let body = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 50\r\n\r\nhello";
    assert_eq!(status(&raw(running.http, body).await), "408");
}

/// A byte now and then does not keep a head open.
#[tokio::test]
async fn a_head_that_drips_is_cut() {
    let running = start(quick()).await;
    let mut stream = TcpStream::connect(running.http).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nX: ").await.unwrap();
    let cut = async {
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, cut).await.expect("an end");
}

/// Whoever asks for much and reads nothing lets go of the backend in the end.
#[tokio::test]
async fn an_answer_that_nobody_takes_is_cut() {
    let running = start(quick()).await;
    let (told, mut ended) = tokio::sync::mpsc::channel(1);
    let endless = backend(move |mut stream| {
        let told = told.clone();
        async move {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
            let piece = vec![b'x'; 1 << 16];
            let mut written = stream.write_all(head).await;
            while written.is_ok() {
                written = stream.write_all(&piece).await;
            }
            told.send(()).await.unwrap();
        }
    })
    .await;
    running.serve(&[row("a.example", &Protocol::Http1, &[endless.address])]);
    let mut stream = TcpStream::connect(running.http).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    tokio::time::timeout(DEADLINE, ended.recv()).await.expect("the backend is let go").unwrap();
}

#[tokio::test]
async fn the_newest_connections_are_served_however_many_there_are() {
    let strangers = Share { all: 8, of_source: 8 };
    let running = start_with(Limits::default(), Places { strangers, ..PLACES }).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    // One who is known stays, whoever comes.
    let mut known = TcpStream::connect(running.http).await.unwrap();
    known.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    let mut seen = [0; 15];
    known.read_exact(&mut seen).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(running.http).await.unwrap());
    }
    assert_eq!(status(&get(running.http, "a.example", "/").await), "200");
    assert_eq!(rest(&mut idle[0]).await, "", "the oldest has given way");
    known.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").await.unwrap();
    assert_eq!(rest(&mut known).await.matches("one: GET /").count(), 2);
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_told_so() {
    let running = start(Limits { requests: 1, ..Limits::default() }).await;
    let silent = super::backends::silent().await;
    running.serve(&[row("a.example", &Protocol::Http1, &[silent.address])]);
    let mut waiting = TcpStream::connect(running.http).await.unwrap();
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    let has_come = async {
        while silent.connections.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, has_come).await.expect("the first is under way");
    let answer = get(running.http, "a.example", "/").await;
    assert_eq!(status(&answer), "503");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    drop(waiting);
}

#[tokio::test]
async fn what_a_backend_answers_is_an_answer_or_a_502() {
    let running = start(Limits::default()).await;
    let rows: [(&'static [u8], &str); 9] = [
        (b"", "502"),
        (b"nonsense\r\n\r\n", "502"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "502"),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "502"),
        (b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "502"),
        (b"HTTP/1.1 99999 Odd\r\n\r\n", "502"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", "200"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n", "304"),
    ];
    for (answer, expected) in rows {
        let liar = writing(answer).await;
        running.serve(&[row("a.example", &Protocol::Http1, &[liar.address])]);
        let found = get(running.http, "a.example", "/").await;
        assert_eq!(status(&found), expected, "{}", String::from_utf8_lossy(answer));
    }
}

/// A head without an end is not gathered for ever.
#[tokio::test]
async fn a_backends_head_is_bounded() {
    let running = start(Limits::default()).await;
    let endless = backend(|mut stream| async move {
        let mut written = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").await;
        while written.is_ok() {
            written = stream.write_all(&[b'x'; 4096]).await;
        }
    })
    .await;
    running.serve(&[row("a.example", &Protocol::Http1, &[endless.address])]);
    assert_eq!(status(&get(running.http, "a.example", "/").await), "502");
}

/// The client learns that the answer is not whole.
#[tokio::test]
async fn a_backend_that_dies_in_the_middle_ends_the_connection() {
    let running = start(Limits::default()).await;
    let dying = writing(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[dying.address])]);
    let answer = raw(running.http, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert!(answer.contains("content-length: 100") && answer.ends_with("half"), "{answer}");
    let chunked = writing(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[chunked.address])]);
    let answer = raw(running.http, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert!(answer.contains("half") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    let mut sender = h2c(running.http).await;
    let request = Request::get("http://a.example/").body(Full::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
}

/// Requests that are given up as soon as they are made end the connection, not the server. Source: CVE-2023-44487.
#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (1..20_000_u32).step_by(2) {
        // HEADERS with END_STREAM and END_HEADERS: GET / of http, and its :authority; then RST_STREAM with CANCEL.
        let block = b"\x82\x84\x86\x41\x09a.example";
        bytes.extend_from_slice(&[0, 0, u8::try_from(block.len()).unwrap(), 1, 5]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(block);
        bytes.extend_from_slice(&[0, 0, 4, 3, 0]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(&8_u32.to_be_bytes());
    }
    let mut stream = TcpStream::connect(running.http).await.unwrap();
    // It may be cut while it is still being written to.
    drop(stream.write_all(&bytes).await);
    rest(&mut stream).await;
    assert!(one.connections.load(Ordering::Relaxed) < 1000);
    assert_eq!(status(&get(running.http, "a.example", "/").await), "200");
}

/// What is under way when the process ends is answered; idle connections are not waited for.
#[tokio::test]
async fn requests_under_way_end_well_when_the_process_ends() {
    let running = start(Limits::default()).await;
    let (go, gone) = tokio::sync::watch::channel(false);
    let slow = backend(move |mut stream| {
        let mut gone = gone.clone();
        async move {
            let mut seen = [0; 1024];
            assert!(stream.read(&mut seen).await.unwrap() > 0);
            gone.wait_for(|gone| *gone).await.unwrap();
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await);
        }
    })
    .await;
    running.serve(&[row("a.example", &Protocol::Http1, &[slow.address])]);
    let idle = TcpStream::connect(running.http).await.unwrap();
    let under_way = tokio::spawn(raw(running.http, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    let has_come = async {
        while slow.connections.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, has_come).await.expect("it is under way");
    running.tasks.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    go.send_replace(true);
    assert!(under_way.await.unwrap().ends_with("ok"));
    tokio::time::timeout(DEADLINE, running.tasks.stop_and_wait()).await.expect("an end");
    drop(idle);
}

/// HTTP/2 without TLS: the preface, and a request of these headers as they are, each a literal that is not indexed.
fn headers_of_http2(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    bytes.extend_from_slice(&[0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
    bytes.extend_from_slice(&block);
    // And a GOAWAY, after which nothing more comes.
    bytes.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// What would be another message in HTTP/1.1 is none in HTTP/2. Source: RFC 9113, sections 8.2 and 8.3.
#[tokio::test]
async fn what_http2_does_not_have_reaches_no_backend() {
    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.example")];
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    let with = |more: &[(&'static str, &'static str)]| [&GET, more].concat();
    let without = |name: &str| -> Vec<_> { GET.into_iter().filter(|(known, _)| *known != name).collect() };
    let rows = [
        ("a name in capitals", with(&[("X-Large", "1")])),
        ("a name with a space", with(&[("x large", "1")])),
        ("a name with a colon", with(&[("x:y", "1")])),
        ("a line in a value", with(&[("x", "1\r\nhost: b.example")])),
        ("a line feed in a value", with(&[("x", "1\nhost: b.example")])),
        ("a zero in a value", with(&[("x", "1\0")])),
        ("connection", with(&[("connection", "close")])),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("upgrade", with(&[("upgrade", "websocket")])),
        ("keep-alive", with(&[("keep-alive", "timeout=5")])),
        ("proxy-connection", with(&[("proxy-connection", "keep-alive")])),
        ("te", with(&[("te", "gzip")])),
        ("another host", with(&[("host", "b.example")])),
        ("two hosts", with(&[("host", "a.example"), ("host", "a.example")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "5")])),
        ("a length with a sign", with(&[("content-length", "+0")])),
        ("another beginning", with(&[(":foo", "bar")])),
        ("a beginning at the end", with(&[("x", "1"), (":path", "/admin")])),
        ("two paths", with(&[(":path", "/admin")])),
        ("a status", with(&[(":status", "200")])),
        ("no path", without(":path")),
        ("no method", without(":method")),
        ("no scheme", without(":scheme")),
        ("an empty path", [without(":path"), vec![(":path", "")]].concat()),
        ("a relative path", [without(":path"), vec![(":path", "admin")]].concat()),
        ("a path above the root", [without(":path"), vec![(":path", "/../admin")]].concat()),
        ("a space in the path", [without(":path"), vec![(":path", "/ HTTP/1.1\r\nHost: b")]].concat()),
        ("a method of two words", [without(":method"), vec![(":method", "GET /x")]].concat()),
        ("a host with a path", [without(":authority"), vec![(":authority", "a.example/admin")]].concat()),
        ("a host with a user", [without(":authority"), vec![(":authority", "x@a.example")]].concat()),
    ];
    for (name, headers) in rows {
        let answer = raw(running.http, headers_of_http2(&headers)).await;
        assert!(!answer.contains("one: "), "{name}: {answer}");
        assert_eq!(one.connections.load(Ordering::Relaxed), 0, "{name}");
    }
    let answer = raw(running.http, headers_of_http2(&GET)).await;
    assert!(answer.contains("one: GET / "), "the same without any of it is answered: {answer}");
}

/// Source: `HTTPRouteBackendProtocolWebSocket`, RFC 6455, section 4.
#[tokio::test]
async fn a_switch_of_protocols_that_is_none_is_a_request_as_any_other() {
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    for (name, headers) in [
        (
            "h2c",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        ),
        ("tls", "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"),
        ("nothing", "Connection: Upgrade\r\nUpgrade: \r\n"),
        ("without a word", "Connection: Upgrade\r\n"),
        ("without a connection", "Upgrade: websocket\r\n"),
        ("another connection", "Connection: keep-alive\r\nUpgrade: websocket\r\n"),
        ("a word within a word", "Connection: Upgraded\r\nUpgrade: websocket\r\n"),
        ("a protocol within a protocol", "Connection: Upgrade\r\nUpgrade: websocketx\r\n"),
    ] {
        let request = format!("GET /ws HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n");
        let answer = raw(running.http, request).await;
        assert_eq!(status(&answer), "200", "{name}: {answer}");
        let told = answer.split_once("\r\n\r\n").map(|(_, told)| told.to_lowercase()).unwrap_or_default();
        assert!(!told.contains("upgrade") && !told.contains("http2-settings"), "{name}: {told}");
    }
}

/// A chunk says in one way how long it is, or there is no message. Source: RFC 9112, section 7.1.
#[tokio::test]
async fn chunks_that_are_none_reach_no_backend_as_a_whole() {
    let running = start(quick()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    for (name, body) in [
        ("a sign", "+5\r\nhello\r\n0\r\n\r\n"),
        ("a prefix", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("no digit", "\r\nhello\r\n0\r\n\r\n"),
        ("letters", "zz\r\nhello\r\n0\r\n\r\n"),
        ("more than there can be", "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"),
        ("longer than it says", "3\r\nhello\r\n0\r\n\r\n"),
        ("no end of the chunk", "5\r\nhello0\r\n\r\n"),
        ("a line feed alone", "5\nhello\r\n0\r\n\r\n"),
        ("two numbers", "5 5\r\nhello\r\n0\r\n\r\n"),
        ("cut", "5\r\nhel"),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = raw(running.http, format!("{head}{body}")).await;
        assert!(!answer.contains("hello"), "{name}: {answer}");
    }
    let head =
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n";
    let answer =
        raw(running.http, format!("{head}2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n")).await;
    assert!(answer.contains("hello"), "{answer}");
}
