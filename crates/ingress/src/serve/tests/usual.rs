//! What clients and backends do when they mean well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::backends::{backend, closed, silent, telling};
use super::client::{get, h2c, over, raw, status, tls};
use super::*;
use crate::certificates::At;

/// What a backend was told, without what an answer begins with.
async fn told(address: SocketAddr, request: &str) -> String {
    let answer = raw(address, request).await;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or(answer)
}

#[tokio::test]
async fn a_request_goes_to_the_endpoints_in_turn_and_says_whose_it_is() {
    let running = start(Limits::default()).await;
    let (one, two) = (telling("one").await, telling("two").await);
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address, two.address])]);
    let request = "POST /x/%41?q=1 HTTP/1.1\r\nHost: A.example:8080\r\nContent-Length: 5\r\nX-Forwarded-For: 192.0.2.9\r\n\
                   Connection: close, X-Hop\r\nX-Hop: 1\r\nAccept: */*\r\n\r\nhello";
    let first = told(running.http, request).await;
    for line in [
        "one: POST /x/%41?q=1 HTTP/1.1 ",
        "host: A.example:8080",
        "x-forwarded-for: 127.0.0.1",
        "x-real-ip: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: A.example:8080",
        "content-length: 5",
        "accept: */*",
        "hello",
    ] {
        assert!(first.contains(line), "{line} is not in {first}");
    }
    assert!(!first.contains("x-hop") && !first.contains("192.0.2.9"), "{first}");
    let names: Vec<bool> = [told(running.http, request).await, told(running.http, request).await]
        .map(|told| told.contains("two: "))
        .into();
    assert_eq!(names, [true, false]);
    assert_eq!(
        one.connections.load(Ordering::Relaxed),
        1,
        "the second request has the connection of the first"
    );
    assert_eq!(status(&get(running.http, "b.example", "/").await), "404");
}

#[tokio::test]
async fn an_endpoint_that_takes_no_connection_is_passed_over() {
    let running = start(Limits { connect: Duration::from_millis(300), ..Limits::default() }).await;
    let (well, away) = (telling("well").await, closed().await);
    running.serve(&[
        row("a.example", &Protocol::Http1, &[away, well.address]),
        row("none.example", &Protocol::Http1, &[]),
        row("away.example", &Protocol::Http1, &[away]),
    ]);
    for _ in 0..3 {
        assert_eq!(status(&get(running.http, "a.example", "/").await), "200");
    }
    // The body is there, too, when the first endpoint did not take it.
    let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    assert!(told(running.http, post).await.contains("hello"));
    assert_eq!(status(&get(running.http, "none.example", "/").await), "503");
    assert_eq!(status(&get(running.http, "away.example", "/").await), "502");
}

#[tokio::test]
async fn a_backend_that_does_not_answer_in_time_is_a_504() {
    let running = start(Limits::default()).await;
    let silent = silent().await;
    let slow = row("a.example", &Protocol::Http1, &[silent.address]);
    running.serve(&[changed(&slow, |route| {
        route.timeouts.response = Some(Duration::from_millis(200));
    })]);
    assert_eq!(status(&get(running.http, "a.example", "/").await), "504");
}

#[tokio::test]
async fn plain_requests_are_redirected_where_that_is_asked_for() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    let plain = row("a.example", &Protocol::Http1, &[one.address]);
    running.serve(&[changed(&plain, |route| route.plain = Plain::Redirected)]);
    let answer = get(running.http, "a.example:8080", "/x?y=1").await;
    assert_eq!(status(&answer), "308");
    assert!(answer.contains("location: https://a.example/x?y=1\r\n"), "{answer}");
    let mut sender = over(tls(running.https, "a.example", &[b"h2"]).await).await;
    let request = Request::get("https://a.example/x").body(Full::default()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn tls_shows_the_certificate_of_the_name_and_speaks_what_is_asked_for() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let field = |name: &str, text: String| (name.to_owned(), ByteString(text.into_bytes()));
    let data = [field("tls.crt", made.cert.pem()), field("tls.key", made.signing_key.serialize_pem())];
    running.show("a.example", Secret { data: Some(data.into()), ..Secret::default() });
    for (name, protocols, is_own) in [
        ("a.example", &[b"h2".as_slice()][..], true),
        ("a.example", &[b"http/1.1".as_slice()][..], true),
        ("b.example", &[b"h2".as_slice()][..], false),
    ] {
        let stream = tls(running.https, name, protocols).await;
        let (_, session) = stream.get_ref();
        assert_eq!(session.alpn_protocol(), protocols.first().copied());
        let shown = &session.peer_certificates().unwrap()[0];
        assert_eq!(shown == made.cert.der(), is_own, "{name}");
    }
    let mut stream = tls(running.https, "a.example", &[b"http/1.1"]).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("x-forwarded-proto: https"), "{answer}");
}

#[tokio::test]
async fn grpc_keeps_its_host_and_its_trailers_over_http2_to_the_end() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::H2c, &[one.address])]);
    for secure in [false, true] {
        let mut sender = match secure {
            false => h2c(running.http).await,
            true => over(tls(running.https, "a.example", &[b"h2"]).await).await,
        };
        let request = Request::post("http://a.example/pkg.Service/Call")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(Full::from(Bytes::from_static(b"message")))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let collected = answer.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().and_then(|all| all.get("grpc-status")).unwrap(), "0");
        let text = String::from_utf8(collected.to_bytes().to_vec()).unwrap();
        for line in ["POST /pkg.Service/Call HTTP/2.0 a.example\n", "te: trailers", "message"] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
    assert_eq!(one.connections.load(Ordering::Relaxed), 1, "one connection is enough");
}

#[tokio::test]
async fn a_body_of_unknown_length_goes_on_as_one() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    for method in ["POST", "GET"] {
        let chunked = format!(
            "{method} / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        let told = told(running.http, &chunked).await;
        assert!(told.contains("transfer-encoding: chunked") && told.contains("hello"), "{told}");
    }
}

#[tokio::test]
async fn an_expectation_is_met_when_somebody_takes_the_body() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    running.serve(&[
        row("a.example", &Protocol::Http1, &[one.address]),
        row("b.example", &Protocol::Http1, &[]),
    ]);
    let head = |host: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
    };
    let mut stream = TcpStream::connect(running.http).await.unwrap();
    stream.write_all(head("a.example").as_bytes()).await.unwrap();
    let mut line = [0; 25];
    stream.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").await.unwrap();
    let answer = super::client::rest(&mut stream).await;
    assert!(answer.contains("hello") && !answer.contains("expect"), "{answer}");
    assert_eq!(status(&raw(running.http, head("b.example")).await), "503");
}

/// Switches to an echo.
async fn echoing() -> super::backends::Backend {
    backend(|mut stream| async move {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if !stream.read(&mut byte).await.is_ok_and(|count| count > 0) {
                return;
            }
            seen.extend_from_slice(&byte);
        }
        let asked = String::from_utf8_lossy(&seen).to_lowercase();
        if !asked.contains("connection: upgrade\r\n") || !asked.contains("upgrade: websocket\r\n") {
            return;
        }
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let (mut read, mut write) = stream.split();
        drop(tokio::io::copy(&mut read, &mut write).await);
    })
    .await
}

#[tokio::test]
async fn a_web_socket_is_a_tunnel_that_outlives_the_table() {
    let running = start(Limits { idle: Duration::from_millis(200), ..Limits::default() }).await;
    let echo = echoing().await;
    running.serve(&[row("a.example", &Protocol::Http1, &[echo.address])]);
    let mut stream = TcpStream::connect(running.http).await.unwrap();
    let head = "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(status(&answer), "101");
    assert!(answer.contains("sec-websocket-accept: x"), "{answer}");
    running.serve(&[]);
    for round in 0..3 {
        // Longer than a connection may be idle on which nothing is asked.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let text = format!("round {round}");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, text.as_bytes());
    }
    assert!(running.registry.render().contains("knarr_ingress_tunnels 1"));
    drop(stream);
}

#[tokio::test]
async fn a_change_of_the_table_fails_no_request() {
    let running = start(Limits::default()).await;
    let (one, two) = (telling("one").await, telling("two").await);
    let rows = [one.address, two.address].map(|address| row("a.example", &Protocol::Http1, &[address]));
    running.serve(&rows[..1]);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (is_over, address) = (Arc::clone(&is_over), running.http);
            tokio::spawn(async move {
                // Two keep their connection, two have a new one for each request.
                let mut kept = if number < 2 { Some(h2c(address).await) } else { None };
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let found = match &mut kept {
                        Some(sender) => {
                            let request = Request::get("http://a.example/").body(Full::default()).unwrap();
                            let answer = sender.send_request(request).await.unwrap();
                            let found = answer.status();
                            answer.into_body().collect().await.unwrap();
                            found.as_str().to_owned()
                        }
                        None => status(&get(address, "a.example", "/").await).to_owned(),
                    };
                    assert_eq!(found, "200");
                    count += 1;
                }
                count
            })
        })
        .collect();
    for change in 0..100 {
        running.serve(&rows[change % 2..=change % 2]);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 0);
    }
}

#[tokio::test]
async fn a_backend_with_tls_is_verified_where_its_service_says_by_what() {
    let running = start(Limits::default()).await;
    let made = rcgen::generate_simple_self_signed(["web.test.svc".to_owned()]).unwrap();
    let stranger = rcgen::generate_simple_self_signed(["web.test.svc".to_owned()]).unwrap();
    let own = certified(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let resolver = Arc::new(At { certificates: Arc::new(Certificates::new(own)), entrance: Entrance::Https });
    let mut config = config.unwrap().with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let secure = backend(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(|request| super::backends::tell("secure", request));
            let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
            drop(builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await);
        }
    })
    .await;
    let speaks = |name: &str, authority: Option<&str>| Protocol::Tls {
        name: name.to_owned(),
        authority: authority.map(|pem| Arc::from(pem.as_bytes())),
    };
    let rows = [
        ("any.example", speaks("other.test.svc", None), "200"),
        ("good.example", speaks("web.test.svc", Some(&made.cert.pem())), "200"),
        ("name.example", speaks("other.test.svc", Some(&made.cert.pem())), "502"),
        ("stranger.example", speaks("web.test.svc", Some(&stranger.cert.pem())), "502"),
        ("nonsense.example", speaks("web.test.svc", Some("no certificate")), "502"),
    ];
    let table: Vec<Row> =
        rows.iter().map(|(host, protocol, _)| row(host, protocol, &[secure.address])).collect();
    running.serve(&table);
    for (host, _, expected) in rows {
        assert_eq!(status(&get(running.http, host, "/").await), expected, "{host}");
    }
    let answer = get(running.http, "good.example", "/").await;
    assert!(answer.contains("HTTP/2.0 good.example"), "{answer}");
}

#[tokio::test]
async fn requests_are_counted_by_ingress_and_forgotten_with_it() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    running.serve(&[row("a.example", &Protocol::Http1, &[one.address])]);
    get(running.http, "a.example", "/").await;
    get(running.http, "b.example", "/").await;
    let is_told = |line: &str| running.registry.render().contains(line);
    assert!(is_told(r#"knarr_ingress_requests_total{ingress="test/a.example",class="2xx"} 1"#));
    assert!(is_told(r#"knarr_ingress_requests_total{ingress="",class="4xx"} 1"#));
    running.serve(&[]);
    assert!(!is_told("test/a.example"));
}
