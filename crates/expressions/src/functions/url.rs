//! URLs. Source: `k8s.io/apiserver/pkg/cel/library/urls.go`; Go's `net/url`.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::pattern::Format;

use super::{Answer, Row, fail, no_overload};
use crate::evaluate::Context;
use crate::value::{Key, Value};

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

pub(super) const ROWS: &[Row] = &[
    Row { name: "url", overloads: &[("string_to_url", "(string) -> kubernetes.URL")], body: url },
    Row { name: "isURL", overloads: &[("is_url_string", "(string) -> bool")], body: is_url },
    Row { name: "getScheme", overloads: &[("url_get_scheme", PART)], body: |_, args| part(args, |url| url.scheme.clone()) },
    Row { name: "getHost", overloads: &[("url_get_host", PART)], body: |_, args| part(args, |url| url.host.clone()) },
    Row { name: "getHostname", overloads: &[("url_get_hostname", PART)], body: |_, args| part(args, Url::hostname) },
    Row { name: "getPort", overloads: &[("url_get_port", PART)], body: |_, args| part(args, Url::port) },
    Row { name: "getEscapedPath", overloads: &[("url_get_escaped_path", PART)], body: |_, args| part(args, Url::escaped_path) },
    Row {
        name: "getQuery",
        overloads: &[("url_get_query", "kubernetes.URL.() -> map(string, list(string))")],
        body: query,
    },
];

const PART: &str = "kubernetes.URL.() -> string";

impl Url {
    /// A URL that a request can be made of.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !Format::of("uri", &["string"])?.is_met_by(text) {
            return None;
        }
        // What follows a mark is no part of a request, and of no part of the URL that can be asked for.
        let (rest, _) = text.split_once('#').unwrap_or((text, ""));
        let colon = rest.find(':').filter(|colon| {
            rest.get(..*colon).is_some_and(|scheme| {
                scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                    && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
            })
        });
        let (scheme, rest) = match colon {
            Some(colon) => (rest.get(..colon)?, rest.get(colon + 1..)?),
            None => ("", rest),
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match path.strip_prefix("//").filter(|_| !scheme.is_empty()) {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", path),
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let [text, path, query, host] = [text, path, query, host].map(str::to_owned);
        Some(Self { text, scheme: scheme.to_ascii_lowercase(), host, path, query })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn port_at(&self) -> Option<usize> {
        let after = self.host.rfind(']').map_or(0, |end| end + 1);
        self.host.get(after..)?.find(':').map(|colon| after + colon)
    }

    fn hostname(&self) -> String {
        let name = self.port_at().and_then(|colon| self.host.get(..colon)).unwrap_or(&self.host);
        name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name).to_owned()
    }

    fn port(&self) -> String {
        self.port_at().and_then(|colon| self.host.get(colon + 1..)).unwrap_or_default().to_owned()
    }

    /// The path, with everything escaped that has to be.
    fn escaped_path(&self) -> String {
        let mut escaped = String::with_capacity(self.path.len());
        for byte in self.path.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte) {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    }
}

fn url<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    context.allocate(text.len())?;
    match Url::parse(text) {
        Some(url) => Ok(Value::Url(Arc::new(url))),
        None => fail(format!(
            "URL parse error during conversion from string: parse {:?}: invalid URI for request",
            &**text
        )),
    }
}

fn is_url<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(Url::parse(text).is_some()))
}

fn part<'a>(args: &[Value<'a>], part: fn(&Url) -> String) -> Answer<'a> {
    match args {
        [Value::Url(url)] => Ok(Value::text(part(url))),
        _ => no_overload(),
    }
}

fn query<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Url(url)] = args else { return no_overload() };
    context.allocate(url.query.len().saturating_mul(4))?;
    let mut by_name: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(name), Some(value)) = (unescaped(name), unescaped(value)) {
            by_name.entry(name).or_default().push(Value::text(value));
        }
    }
    let keyed = by_name.into_iter().map(|(name, values)| (Key::String(name.into()), Value::list(values)));
    Ok(Value::map(keyed.collect()))
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
