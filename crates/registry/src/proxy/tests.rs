use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use super::*;
use crate::transport::{Ask, Transport, whole};

fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
    Proxies::of(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn a_host_has_a_proxy_unless_it_is_excepted() {
    let check = |exceptions: &str, uri: &str, expect: bool| {
        let variables = [("HTTPS_PROXY", "http://p:3128"), ("no_proxy", exceptions)];
        let found = proxies(&variables).unwrap().for_uri(&uri.parse().unwrap()).is_some();
        assert_eq!(found, expect, "{exceptions:?} {uri}");
    };
    check("", "https://r.example/v2/", true);
    check("", "http://r.example/v2/", false);
    check("", "https://localhost:5000/v2/", false);
    check("", "https://127.1.2.3/", false);
    check("", "https://[::1]:5000/", false);
    check("*", "https://r.example/", false);
    check("example", "https://r.example/", false);
    check("r.example", "https://r.example/", false);
    check("r.example", "https://sr.example/", true);
    check("r.example", "https://s.r.example/", false);
    check(".r.example", "https://r.example/", true);
    check("*.r.example", "https://s.R.example/", false);
    check("a, r.example:5000", "https://r.example:5000/", false);
    check("r.example:5000", "https://r.example/", true);
    check("192.0.2.0/24", "https://192.0.2.7/", false);
    check("192.0.2.0/24", "https://192.0.3.7/", true);
    check("192.0.2.7", "https://192.0.2.7:5000/", false);
    check("192.0.2.7:443", "https://192.0.2.7:5000/", true);
    check("2001:db8::/32", "https://[2001:db8::1]/", false);
    check("0.0.0.0/0", "https://[2001:db8::1]/", true);
}

#[test]
fn what_is_no_proxy_is_named_without_its_password() {
    let all = proxies(&[("http_proxy", "u:p%40@p.example:8080")]).unwrap();
    let proxy = all.for_uri(&"http://r.example".parse().unwrap()).unwrap();
    assert_eq!(proxy.authority, "p.example:8080");
    assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic dTpwQA==");
    assert_eq!(format!("{proxy:?}"), "Proxy(p.example:8080)");
    let error = proxies(&[("HTTPS_PROXY", "socks5://u:secret@p")]).unwrap_err();
    assert_eq!(error.to_string(), "HTTPS_PROXY: proxies of scheme \"socks5\" are not supported");
    assert_eq!(proxies(&[("HTTP_PROXY", "http://")]).unwrap_err().to_string(), "HTTP_PROXY: it is no URL");
}

/// A proxy on loopback that tells the head of the request that it was sent, answers, and tells the next byte.
fn listen(answer: &'static str) -> (u16, std::thread::JoinHandle<(Vec<String>, u8)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        socket.write_all(answer.as_bytes()).unwrap();
        let mut next = [0];
        let len = reader.read(&mut next).unwrap_or_default();
        (head, if len == 1 { next[0] } else { 0 })
    });
    (port, proxy)
}

async fn ask(port: u16, url: &str) -> Result<Vec<u8>, String> {
    let proxy = format!("http://u:p@127.0.0.1:{port}");
    let proxies = proxies(&[("HTTP_PROXY", &proxy), ("HTTPS_PROXY", &proxy)]).unwrap();
    let transport = Transport::new(Arc::default(), proxies);
    let answer = transport.send(&Ask::get(url.to_owned())).await.map_err(|error| error.to_string())?;
    whole(answer, "it", 100).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn what_is_in_the_clear_is_asked_of_the_proxy() {
    let (port, proxy) = listen("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    assert_eq!(ask(port, "http://r.example:5000/v2/").await.unwrap(), b"hi");
    let (head, _) = proxy.join().unwrap();
    assert_eq!(head[0], "GET http://r.example:5000/v2/ HTTP/1.1");
    assert!(head.iter().any(|line| line.eq_ignore_ascii_case("proxy-authorization: Basic dTpw")), "{head:?}");
}

#[tokio::test]
async fn what_tls_protects_goes_through_a_tunnel() {
    const TLS_HANDSHAKE: u8 = 22;
    let (port, proxy) = listen("HTTP/1.1 200 Connection established\r\nVia: p\r\n\r\n");
    ask(port, "https://r.example/v2/").await.unwrap_err();
    let (head, next) = proxy.join().unwrap();
    assert_eq!(
        head,
        ["CONNECT r.example:443 HTTP/1.1", "Host: r.example:443", "Proxy-Authorization: Basic dTpw"]
    );
    assert_eq!(next, TLS_HANDSHAKE);
}

#[tokio::test]
async fn a_proxy_that_will_not_is_told_of() {
    let (port, proxy) = listen("HTTP/1.1 403 Forbidden\r\n\r\n");
    let error = ask(port, "https://r.example/v2/").await.unwrap_err();
    assert!(error.contains(&format!("proxy 127.0.0.1:{port}: HTTP/1.1 403 Forbidden")), "{error}");
    proxy.join().unwrap();
}

/// Source: `UseProxyTests` of `golang.org/x/net/http/httpproxy`.
#[test]
fn exceptions_are_gos() {
    let exceptions = "foo.com, .barbaz.net, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, \
                      2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64";
    let variables = [("HTTP_PROXY", "http://p:3128"), ("NO_PROXY", exceptions)];
    let proxies = proxies(&variables).unwrap();
    for (host, expect) in [
        ("localhost", false),
        ("127.0.0.1", false),
        ("127.0.0.2", false),
        ("[::1]", false),
        ("[::2]", true),
        ("192.168.1.1", false),
        ("192.168.1.2", true),
        ("192.168.1.3", false),
        ("192.168.1.4", true),
        ("10.0.0.2", false),
        ("[2001:db8::52:0:1]", false),
        ("[2001:db8::52:0:2]", true),
        ("[2001:db8::52:0:3]", false),
        ("[2002:db8:a::123]", false),
        ("[fe80::424b:c8be:1643:a1b6]", true),
        ("barbaz.net", true),
        ("www.barbaz.net", false),
        ("foobar.com", true),
        ("foo.com", false),
        ("foofoo.com", true),
        ("baz.com", true),
        ("localhost.net", true),
        ("local.localhost", true),
        ("barbarbaz.net", true),
        ("WWW.BARBAZ.NET", false),
        ("FOO.COM", false),
    ] {
        let uri = format!("http://{host}/v2/").parse().unwrap();
        assert_eq!(proxies.for_uri(&uri).is_some(), expect, "{host}");
    }
}

/// Source: `proxyForURLTests` and `TestInvalidNoProxy` of `golang.org/x/net/http/httpproxy`.
#[test]
fn proxies_are_read_as_go_reads_them() {
    for (name, value, expect) in [
        ("a host", "example.com", Ok("example.com")),
        ("a port", "example.com:1234", Ok("example.com:1234")),
        ("a scheme", "http://example.com", Ok("example.com")),
        ("a path is not looked at", "http://example.com/x?y", Ok("example.com")),
        ("an address", "127.0.0.1:80", Ok("127.0.0.1:80")),
        ("an IPv6 address", "http://[::1]:80", Ok("[::1]:80")),
        ("blanks around", "  http://example.com  ", Ok("example.com")),
        ("a user", "http://u@example.com", Ok("example.com")),
        ("no host", "http://", Err("it is no URL")),
        (
            "a scheme that is no proxy's",
            "ftp://example.com",
            Err("proxies of scheme \"ftp\" are not supported"),
        ),
        ("a blank within", "http://a b", Err("it is no URL")),
    ] {
        let found = proxies(&[("https_proxy", value)]);
        let uri = "https://r.example/".parse().unwrap();
        let found = found.map(|found| found.for_uri(&uri).unwrap().authority.to_string());
        let found = found.map_err(|error| error.to_string());
        let expect = expect.map(str::to_owned).map_err(|why| format!("HTTPS_PROXY: {why}"));
        assert_eq!(found, expect, "{name}");
    }
    let both = proxies(&[("HTTPS_PROXY", "capitals"), ("https_proxy", "none")]).unwrap();
    let uri = "https://r.example/".parse().unwrap();
    assert_eq!(both.for_uri(&uri).unwrap().authority, "capitals");
    // Entries that are none are left out, and the others count.
    let odd = [("https_proxy", "p"), ("no_proxy", ":1,, *. ,.,[,a:b,1.2.3.4/33,1.2.3.4/x,/8,r.example")];
    let odd = proxies(&odd).unwrap();
    for (uri, expect) in [("https://r.example/", false), ("https://1.2.3.4/", true), ("https://a/", true)] {
        assert_eq!(odd.for_uri(&uri.parse().unwrap()).is_some(), expect, "{uri}");
    }
}
