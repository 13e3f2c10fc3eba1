//! What routes of Gateways do with requests beside leading them on.

use std::collections::BTreeMap;

use http::header::{HeaderName, HeaderValue};
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::backends::{backend, silent, telling};
use super::client::{get, h2c, over, raw, status, tls};
use super::*;
use crate::filters::{HeaderEdit, PathEdit, Redirect, Rewrite};
use crate::matching::{Pattern, Text};
use crate::table::Mirror;

fn forward(route: &mut Route) -> &mut Forward {
    match &mut route.action {
        Action::Forward(forward) => forward,
        other => panic!("{other}"),
    }
}

fn pair(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

fn edit(name: &'static str, value: &'static str) -> HeaderEdit {
    HeaderEdit { set: vec![pair(name, value)], ..HeaderEdit::default() }
}

#[tokio::test]
async fn requests_are_split_by_weight_and_what_is_missing_has_its_part() {
    let running = start(Limits::default()).await;
    let (one, two) = (telling("one").await, telling("two").await);
    let split = changed(&row("a.example", &Protocol::Http1, &[one.address]), |route| {
        let forward = forward(route);
        forward.backends[0].weight = 6;
        let other = service("two", &Protocol::Http1, &[two.address]);
        let missing =
            Backend { absent: StatusCode::INTERNAL_SERVER_ERROR, ..service("gone", &Protocol::Http1, &[]) };
        for (weight, backend) in [(3, other), (1, missing)] {
            forward.backends.push(Weighted { weight, edits: Edits::default(), backend });
        }
    });
    running.serve(&[split]);
    let mut counts = BTreeMap::new();
    for _ in 0..20 {
        let answer = get(running.http, "a.example", "/").await;
        let who =
            ["one: ", "two: "].into_iter().find(|name| answer.contains(name)).unwrap_or(status(&answer));
        *counts.entry(who.to_owned()).or_insert(0) += 1;
    }
    let expected = [("one: ", 12), ("two: ", 6), ("500", 2)].map(|(who, count)| (who.to_owned(), count));
    assert_eq!(counts, expected.into());
}

#[tokio::test]
async fn requests_and_answers_are_changed_on_their_way() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    let made = changed(&row("a.example", &Protocol::Http1, &[one.address]), |route| {
        route.edits.request = edit("x-rule", "1");
        route.edits.request.remove = vec![HeaderName::from_static("x-secret")];
        route.edits.response = edit("x-answer", "rule");
        route.edits.response.remove = vec![HeaderName::from_static("trailer")];
        let forward = forward(route);
        forward.backends[0].edits = Edits { request: edit("x-backend", "2"), response: edit("x-also", "3") };
        let path = PathEdit::Prefix { matched: "/old".to_owned(), replacement: "/new".to_owned() };
        forward.rewrite = Rewrite { host: Some(HeaderValue::from_static("b.example")), path: Some(path) };
    });
    running.serve(&[made]);
    let request = "GET /%6fld/x?q=%20 HTTP/1.1\r\nHost: a.example\r\nX-Secret: s\r\nX-Rule: 0\r\nConnection: close\r\n\r\n";
    let answer = raw(running.http, request).await;
    for line in [
        "x-answer: rule",
        "x-also: 3",
        "GET /new/x?q=%20 HTTP/1.1",
        "host: b.example",
        "x-forwarded-host: a.example",
        "x-rule: 1",
        "x-backend: 2",
    ] {
        assert!(answer.contains(line), "{line} is not in {answer}");
    }
    assert!(
        !answer.contains("x-secret") && !answer.contains("x-rule: 0") && !answer.contains("trailer:"),
        "{answer}"
    );
    // The same over HTTP/2, where the host is a part of the target.
    let request =
        Request::get("http://a.example/old").version(Version::HTTP_2).body(Full::default()).unwrap();
    let answer = h2c(running.http).await.send_request(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains("one: GET /new HTTP/1.1") && body.contains("host: b.example"), "{body}");
}

#[tokio::test]
async fn clients_are_sent_elsewhere_but_not_to_where_they_are() {
    let running = start(Limits::default()).await;
    let redirect =
        Redirect { scheme: None, host: None, port: None, path: None, status: StatusCode::MOVED_PERMANENTLY };
    let base = row("a.example", &Protocol::Http1, &[]);
    let to = |host: &str, redirect: Redirect| {
        let row = changed(&base, |route| route.action = Action::Redirect(redirect));
        Row { host: Host::of_rule(host), ..row }
    };
    running.serve(&[
        to("a.example", Redirect { scheme: Some(Scheme::Https), ..redirect.clone() }),
        to("loop.example", redirect.clone()),
        to("other.example", Redirect { host: Some("a.example".to_owned()), ..redirect }),
    ]);
    let answer = get(running.http, "a.example", "/%41?q=1").await;
    assert_eq!(status(&answer), "301");
    assert!(answer.contains("location: https://a.example/%41?q=1\r\n"), "{answer}");
    assert_eq!(status(&get(running.http, "loop.example", "/").await), "500");
    let port = running.http.port();
    let answer = get(running.http, "other.example", "/x").await;
    assert!(answer.contains(&format!("location: http://a.example:{port}/x\r\n")), "{answer}");
}

#[tokio::test]
async fn a_route_waits_as_long_as_it_says_whatever_the_client_does() {
    let running = start(Limits::default()).await;
    let silent = silent().await;
    let slow = changed(&row("a.example", &Protocol::Http1, &[silent.address]), |route| {
        route.timeouts = Timeouts { request: Some(Duration::from_millis(200)), ..Timeouts::default() };
    });
    running.serve(&[slow]);
    assert_eq!(status(&get(running.http, "a.example", "/").await), "504");
    let unfinished = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhe";
    assert_eq!(status(&raw(running.http, unfinished).await), "504");
}

#[tokio::test]
async fn a_mirror_gets_what_the_backend_gets_and_nobody_waits_for_it() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    let (seen, mut copies) = mpsc::unbounded_channel();
    let mirror = backend(move |mut stream: TcpStream| {
        let seen = seen.clone();
        async move {
            let (mut bytes, mut piece) = (Vec::new(), [0; 1024]);
            // It never answers.
            while let Ok(count) = tokio::io::AsyncReadExt::read(&mut stream, &mut piece).await
                && count > 0
            {
                bytes.extend_from_slice(&piece[..count]);
                if bytes.ends_with(b"hello") || bytes.ends_with(b"0\r\n\r\n") {
                    seen.send(String::from_utf8_lossy(&bytes).into_owned()).unwrap();
                }
            }
        }
    })
    .await;
    let made = changed(&row("a.example", &Protocol::Http1, &[one.address]), |route| {
        let backend = service("mirror", &Protocol::Http1, &[mirror.address]);
        forward(route).mirrors = vec![Mirror { numerator: 1, denominator: 2, backend }];
    });
    running.serve(&[made]);
    let known = "POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let chunked = "POST /y HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    for request in [known, known, chunked, known] {
        let answer = raw(running.http, request).await;
        assert_eq!(status(&answer), "200");
        assert!(answer.contains("hello"), "{answer}");
    }
    let first = copies.recv().await.unwrap();
    assert!(first.starts_with("POST /x HTTP/1.1\r\n") && first.ends_with("hello"), "{first}");
    let second = copies.recv().await.unwrap();
    assert!(second.starts_with("POST /y HTTP/1.1\r\n") && second.contains("hel"), "{second}");
    assert!(copies.try_recv().is_err(), "every other request is copied");
}

#[tokio::test]
async fn a_name_of_tls_is_its_listeners_and_no_others() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    let listener = |host| Listener { entrance: Entrance::Https, host: Host::of_gateway(host) };
    let wide = row("*.example", &Protocol::Http1, &[one.address]);
    let wide = Row { listener: Some(listener("*.example")), host: Host::of_gateway("*.example"), ..wide };
    let listeners = vec![listener("*.example"), listener("a.example")];
    running.plane.replace(&Table { listeners, rows: vec![wide], ports: BTreeMap::new() });
    for (name, host, expected) in [
        ("b.example", "b.example", StatusCode::OK),
        ("b.example", "c.example", StatusCode::OK),
        ("b.example", "a.example", StatusCode::MISDIRECTED_REQUEST),
        ("a.example", "a.example", StatusCode::NOT_FOUND),
        ("a.example", "b.example", StatusCode::MISDIRECTED_REQUEST),
    ] {
        let mut sender = over(tls(running.https, name, &[b"h2"]).await).await;
        let request = Request::get(format!("https://{host}/")).body(Full::default()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), expected, "{name} {host}");
    }
    assert_eq!(status(&get(running.http, "b.example", "/").await), "404", "there is no listener without TLS");
}

#[tokio::test]
async fn a_port_of_a_gateway_comes_and_goes_and_takes_no_backend_with_it() {
    let running = start(Limits::default()).await;
    let one = telling("one").await;
    let at = Listener { entrance: Entrance::Port(8080), host: Host::Any };
    let of_port = Row { listener: Some(at.clone()), ..row("", &Protocol::Http1, &[one.address]) };
    let ingress = row("a.example", &Protocol::Http1, &[one.address]);
    let table = Table { listeners: vec![at], rows: vec![ingress, of_port], ports: BTreeMap::new() };
    running.plane.replace(&table);
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, tasks) = (listener.local_addr().unwrap(), running.tasks.child());
        let connections = Arc::clone(&running.connections);
        let (scheme, entrance) = (Scheme::Http, Entrance::Port(8080));
        let port = Port { listener, scheme, entrance, tasks: tasks.clone(), connections };
        listen(&running.plane, port).unwrap();
        assert_eq!(status(&get(address, "whoever", "/").await), "200");
        tasks.stop();
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(status(&get(running.http, "a.example", "/").await), "200");
        assert_eq!(status(&get(running.http, "whoever", "/").await), "404");
    }
}

/// Ten thousand rows for one path, and the last one is meant.
#[tokio::test]
async fn rows_of_one_path_are_told_apart_by_what_else_is_asked() {
    let running = start(Limits::default()).await;
    let (one, two) = (telling("one").await, telling("two").await);
    let base = row("", &Protocol::Http1, &[one.address]);
    let when = |text: Text| When { headers: vec![("x-row".to_owned(), text)], ..When::default() };
    let mut rows: Vec<Row> = (0..10_000)
        .map(|number| Row { when: when(Text::Exact(number.to_string())), ..base.clone() })
        .collect();
    rows.push(Row {
        when: when(Text::Pattern(Pattern::new("last-.*").unwrap())),
        ..row("", &Protocol::Http1, &[two.address])
    });
    running.serve(&rows);
    let ask =
        |value: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nX-Row: {value}\r\nConnection: close\r\n\r\n");
    assert!(raw(running.http, ask("9999")).await.contains("one: "));
    assert!(raw(running.http, ask("last-one")).await.contains("two: "));
    assert_eq!(status(&raw(running.http, ask("other")).await), "404");
}
