//! One HTTP request to a container, for hooks and probes. Certificates are not checked, as upstream does.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::HTTPGetAction;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Target;
use super::error::{DialError, ExchangeError, HttpError, PortError};

/// Bytes of an answer that are read.
const BODY_MAX: usize = 10 * 1024;
/// Requests of one call.
const REDIRECTS_MAX: usize = 10;

/// What a probe calls itself, unless it is told otherwise.
const PROBE: &str = "kube-probe/1.35";
/// What a hook does.
const HOOK: &str = "kube-lifecycle/1.35";

/// What to ask for.
#[derive(Clone, Debug)]
pub(crate) struct HttpCall {
    host: String,
    port: u16,
    /// With its query, escaped.
    path: String,
    agent: &'static str,
    is_tls: bool,
    headers: Vec<(String, String)>,
}

impl HttpCall {
    /// The request that `action` describes.
    ///
    /// # Errors
    /// Its port has a name that the container does not know.
    pub(crate) fn of(target: &Target<'_>, action: &HTTPGetAction) -> Result<Self, PortError> {
        let path = escaped(action.path.as_deref().unwrap_or_default());
        Ok(Self {
            agent: PROBE,
            host: target.host(action.host.as_deref()),
            port: target.port(&action.port)?,
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            is_tls: action.scheme.as_deref() == Some("HTTPS"),
            headers: action
                .http_headers
                .iter()
                .flatten()
                .map(|h| (h.name.clone(), h.value.clone()))
                .collect(),
        })
    }

    /// The same request to the `Location` of an answer; `None` if that is none.
    fn sent_to(&self, location: &str) -> Option<Self> {
        let place: http::Uri = match location.split_once("://") {
            Some(_) => location.parse().ok()?,
            None if location.starts_with("//") => return None,
            None if location.starts_with('/') => location.parse().ok()?,
            None => {
                let folder = self.path.split('?').next()?.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{location}").parse().ok()?
            }
        };
        let path = place.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let Some(host) = place.host() else { return Some(Self { path, ..self.clone() }) };
        let is_tls = place.scheme_str() == Some("https");
        let port = place.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { host, port, path, is_tls, ..self.clone() })
    }

    /// The same request without TLS, and without what only a server that has it may see.
    fn in_the_clear(&self) -> Self {
        let mut call = Self { is_tls: false, ..self.clone() };
        call.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        call
    }

    /// The request without a body. Source: `newProbeRequest` of upstream's `pkg/probe/http`.
    fn request(&self) -> Result<http::Request<Empty<Bytes>>, http::Error> {
        let mut builder = http::Request::get(&self.path).header("connection", "close");
        let of = |name: &str| self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        if of("host").is_none() {
            builder = builder.header("host", super::host_port(&self.host, self.port));
        }
        if of("user-agent").is_none() {
            builder = builder.header("user-agent", self.agent);
        }
        let accept = of("accept").map(|(_, value)| value.as_str());
        if accept.is_none() {
            builder = builder.header("accept", "*/*");
        }
        // One that accepts nothing in particular is not said.
        let is_said = |name: &str| !name.eq_ignore_ascii_case("accept") || accept != Some("");
        for (name, value) in self.headers.iter().filter(|(name, _)| is_said(name)) {
            builder = builder.header(name, value);
        }
        builder.body(Empty::new())
    }

    fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", super::host_port(&self.host, self.port), self.path)
    }
}

/// A path, perhaps with a query, as it can be asked for: what cannot be in it is written by its number, as Go does.
///
/// Source: `formatURL` of upstream's `pkg/probe/http`.
fn escaped(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match is_plain(byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What came back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Its beginning.
    pub(crate) body: String,
    location: Option<String>,
}

/// Asks, and follows where it is sent to on the same host, within `timeout` each time. An answer that leads to another
/// host is the answer. Source: `RedirectChecker` of upstream's `pkg/probe/http`.
///
/// # Errors
/// No answer came.
pub(crate) async fn call(first: &HttpCall, timeout: Duration) -> Result<Answer, HttpError> {
    let mut next = first.clone();
    for _ in 0..REDIRECTS_MAX {
        let asked = tokio::time::timeout(timeout, exchange(&next)).await.unwrap_or(Err(ExchangeError::Late));
        let answer = asked.map_err(|source| HttpError::Get { url: next.url(), source })?;
        let is_redirect = matches!(answer.status, 301 | 302 | 303 | 307 | 308);
        let place = answer.location.as_deref().filter(|_| is_redirect).and_then(|place| next.sent_to(place));
        match place.filter(|place| place.host == first.host) {
            Some(place) => next = place,
            None => return Ok(answer),
        }
    }
    Err(HttpError::Redirects(next.path, REDIRECTS_MAX))
}

/// Asks as a lifecycle hook does: without TLS if the server has none. Returns the server that had to be asked so.
/// Source: `runHTTPHandler` of upstream's `pkg/kubelet/lifecycle`.
///
/// # Errors
/// As [`call`]; what is wrong without TLS is not told.
pub(crate) async fn call_hook(first: &HttpCall, timeout: Duration) -> Result<Option<String>, HttpError> {
    let first = &HttpCall { agent: HOOK, ..first.clone() };
    let error = match call(first, timeout).await {
        Ok(_) => return Ok(None),
        Err(error) => error,
    };
    let is_not_tls = matches!(error, HttpError::Get { source: ExchangeError::NotTls, .. });
    if is_not_tls && call(&first.in_the_clear(), timeout).await.is_ok() {
        return Ok(Some(super::host_port(&first.host, first.port)));
    }
    Err(error)
}

async fn exchange(call: &HttpCall) -> Result<Answer, ExchangeError> {
    let (host, port) = (call.host.clone(), call.port);
    let dialled = TcpStream::connect((host.as_str(), port)).await;
    let stream = dialled.map_err(|error| DialError { host, port, error })?;
    if !call.is_tls {
        return request(call, stream).await;
    }
    let name = rustls::pki_types::ServerName::try_from(call.host.clone())?;
    // A probe asks whether the container answers, not who it is.
    let connector = tls::connector(tls::Trust::Anybody, None, &[])?;
    let opening = Opening { stream, heard: Vec::new() };
    match connector.connect(name, opening).into_fallible().await {
        Ok(stream) => request(call, stream).await,
        Err((_, opening)) if opening.heard == HTTP => Err(ExchangeError::NotTls),
        Err((error, _)) => Err(error.into()),
    }
}

async fn request<S>(call: &HttpCall, stream: S) -> Result<Answer, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let read = async |answer: http::Response<Incoming>| {
        let status = answer.status().as_u16();
        let location = answer.headers().get(http::header::LOCATION);
        let location = location.and_then(|place| place.to_str().ok()).map(str::to_owned);
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        let body = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned()).unwrap_or_default();
        Ok(Answer { status, body, location })
    };
    http1::ask(stream, call.request()?, read).await
}

/// How an answer in HTTP begins.
const HTTP: &[u8] = b"HTTP/";

/// A connection that remembers how the server began.
struct Opening {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl AsyncRead for Opening {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let new = buffer.filled().iter().skip(before);
        let room = HTTP.len().saturating_sub(self.heard.len());
        self.heard.extend(new.take(room));
        read
    }
}

impl AsyncWrite for Opening {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server that answers whatever it is told with `answer`, as often as it is asked; it keeps what it was told.
    async fn serve(answer: &'static str) -> (HttpCall, tokio::sync::mpsc::Receiver<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, told) = tokio::sync::mpsc::channel(10);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = vec![0; 1 << 14];
                let count = stream.read(&mut buffer).await.unwrap();
                sender.send(String::from_utf8_lossy(&buffer[..count]).into_owned()).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let headers = [("Authorization", "secret"), ("X-Who", "me")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        (
            HttpCall {
                host: "127.0.0.1".into(),
                port,
                path: "/hook".into(),
                agent: PROBE,
                is_tls: true,
                headers,
            },
            told,
        )
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_hook_is_told_without_tls_where_the_server_has_none() {
        let (hook, mut told) = serve("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        let (host, url) = (format!("127.0.0.1:{}", hook.port), hook.url());
        assert_eq!(call_hook(&hook, MINUTE).await.unwrap(), Some(host));
        told.recv().await.unwrap();
        let told = told.recv().await.unwrap();
        assert!(told.starts_with("GET /hook HTTP/1.1\r\n") && told.contains("x-who: me"), "{told}");
        assert!(told.contains("user-agent: kube-lifecycle/1.35\r\n"), "{told}");
        assert!(!told.to_lowercase().contains("authorization"), "{told}");
        // A probe is not.
        let error = format!("Get \"{url}\": http: server gave HTTP response to HTTPS client");
        assert_eq!(call(&hook, MINUTE).await.unwrap_err().to_string(), error);
    }

    #[tokio::test]
    async fn a_hook_is_not_told_without_tls_to_what_speaks_neither() {
        let (hook, mut told) = serve("220 mail.example ESMTP\r\n").await;
        let error = call_hook(&hook, MINUTE).await.unwrap_err().to_string();
        assert!(!error.contains("HTTP response"), "{error}");
        told.recv().await.unwrap();
        assert!(told.try_recv().is_err(), "one try");
    }

    #[test]
    fn a_location_is_read_as_browsers_do() {
        let call = HttpCall {
            host: "10.42.0.9".into(),
            port: 8080,
            path: "/health/live?full".into(),
            agent: PROBE,
            is_tls: false,
            headers: Vec::new(),
        };
        for (location, expect) in [
            ("/ok", Some("http://10.42.0.9:8080/ok")),
            ("ok?x=1", Some("http://10.42.0.9:8080/health/ok?x=1")),
            ("http://10.42.0.9/ok", Some("http://10.42.0.9:80/ok")),
            ("https://10.42.0.9:8443", Some("https://10.42.0.9:8443/")),
            ("https://login.example/", Some("https://login.example:443/")),
            ("//login.example/", None),
            ("http://no space/", None),
        ] {
            assert_eq!(call.sent_to(location).map(|call| call.url()).as_deref(), expect, "{location}");
        }
        let call = HttpCall { host: "fd42::9".into(), ..call };
        assert_eq!(call.url(), "http://[fd42::9]:8080/health/live?full");
        let elsewhere = call.sent_to("http://[fd42::9]/ok").unwrap();
        assert_eq!(
            (elsewhere.host.as_str(), elsewhere.url().as_str()),
            ("fd42::9", "http://[fd42::9]:80/ok")
        );
    }

    /// Source: `TestRunHTTPHandler` of upstream's `pkg/kubelet/lifecycle`, `TestGetURLParts` of its `prober`, and
    /// `request_test.go`, `http_test.go` of its `pkg/probe/http`.
    #[test]
    fn a_request_is_made_as_upstream_makes_it() {
        let spec = serde_saphyr::from_str("{name: c, ports: [{name: quux, containerPort: 8080}]}").unwrap();
        let ips = ["233.252.0.1".to_owned(), "fd00::1".to_owned()];
        let target = Target { container_id: "c", spec: &spec, ips: &ips };
        const OWN: &str = "accept=*/* host=HOST user-agent=kube-probe/1.35";
        let with = |host: &str| OWN.replace("HOST", host);
        for (name, action, url, headers) in [
            ("nothing said", "{port: 42}", "http://233.252.0.1:42/", with("233.252.0.1:42")),
            (
                "a host",
                "{port: '42', host: example.test, path: foo}",
                "http://example.test:42/foo",
                with("example.test:42"),
            ),
            (
                "an empty one",
                "{port: 42, host: '', path: /foo}",
                "http://233.252.0.1:42/foo",
                with("233.252.0.1:42"),
            ),
            (
                "a port by its name",
                "{port: quux, path: foo}",
                "http://233.252.0.1:8080/foo",
                with("233.252.0.1:8080"),
            ),
            (
                "with TLS",
                "{port: 4430, path: foo, scheme: HTTPS}",
                "https://233.252.0.1:4430/foo",
                with("233.252.0.1:4430"),
            ),
            (
                "a query",
                "{port: 80, path: 'foo?k=v'}",
                "http://233.252.0.1:80/foo?k=v",
                with("233.252.0.1:80"),
            ),
            (
                "a fragment is not sent",
                "{port: 80, path: 'foo#frag'}",
                "http://233.252.0.1:80/foo",
                with("233.252.0.1:80"),
            ),
            (
                "a blank, and more",
                "{port: 80, path: '/a b/%2F/é{}'}",
                "http://233.252.0.1:80/a%20b/%2F/%C3%A9%7B%7D",
                with("233.252.0.1:80"),
            ),
            (
                "a header",
                "{port: 80, httpHeaders: [{name: Foo, value: bar}, {name: Foo, value: baz}]}",
                "http://233.252.0.1:80/",
                format!("{} foo=bar foo=baz", with("233.252.0.1:80")),
            ),
            (
                "another host's name",
                "{port: 80, host: example.test, httpHeaders: [{name: Host, value: from.header}]}",
                "http://example.test:80/",
                with("from.header"),
            ),
            (
                "another agent",
                "{port: 80, httpHeaders: [{name: user-agent, value: me}]}",
                "http://233.252.0.1:80/",
                "accept=*/* host=233.252.0.1:80 user-agent=me".into(),
            ),
            (
                "no agent",
                "{port: 80, httpHeaders: [{name: User-Agent, value: ''}]}",
                "http://233.252.0.1:80/",
                "accept=*/* host=233.252.0.1:80 user-agent=".into(),
            ),
            (
                "text",
                "{port: 80, httpHeaders: [{name: Accept, value: text/html}]}",
                "http://233.252.0.1:80/",
                "accept=text/html host=233.252.0.1:80 user-agent=kube-probe/1.35".into(),
            ),
            (
                "whatever",
                "{port: 80, httpHeaders: [{name: Accept, value: ''}]}",
                "http://233.252.0.1:80/",
                "host=233.252.0.1:80 user-agent=kube-probe/1.35".into(),
            ),
        ] {
            let call = HttpCall::of(&target, &serde_saphyr::from_str(action).unwrap()).unwrap();
            assert_eq!(call.url(), url, "{name}");
            let request = call.request().unwrap();
            let told =
                request.headers().iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap()));
            let mut told: Vec<_> = told.filter(|one| one != "connection=close").collect();
            told.sort();
            let mut expect: Vec<_> = headers.split(' ').map(str::to_owned).collect();
            expect.sort();
            assert_eq!(told, expect, "{name}");
        }
        let far = Target { container_id: "c", spec: &spec, ips: &ips[1..] };
        let call = HttpCall::of(&far, &serde_saphyr::from_str("{port: 80}").unwrap()).unwrap();
        assert_eq!(call.url(), "http://[fd00::1]:80/");
        for (port, expect) in [
            ("-1", None),
            ("0", None),
            ("65536", None),
            ("''", None),
            ("'-1'", None),
            ("not-found", None),
            ("quux", Some(8080)),
            ("76", Some(76)),
            ("'118'", Some(118)),
        ] {
            assert_eq!(target.port(&serde_saphyr::from_str(port).unwrap()).ok(), expect, "{port}");
        }
    }
}
