//! URLs. Source: `k8s.io/apiserver/pkg/cel/library/urls.go`; Go's `net/url`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Answer, Row, fail, no_overload};
use crate::context::Context;
use crate::value::{Key, Url, Value};

pub(super) const ROWS: &[Row] = &[
    Row { name: "url", overloads: &[("string_to_url", "(string) -> kubernetes.URL")], body: url },
    Row { name: "isURL", overloads: &[("is_url_string", "(string) -> bool")], body: is_url },
    Row {
        name: "getScheme",
        overloads: &[("url_get_scheme", PART)],
        body: |_, args| part(args, |url| url.scheme().to_owned()),
    },
    Row {
        name: "getHost",
        overloads: &[("url_get_host", PART)],
        body: |_, args| part(args, |url| url.host().to_owned()),
    },
    Row {
        name: "getHostname",
        overloads: &[("url_get_hostname", PART)],
        body: |_, args| part(args, Url::hostname),
    },
    Row { name: "getPort", overloads: &[("url_get_port", PART)], body: |_, args| part(args, Url::port) },
    Row {
        name: "getEscapedPath",
        overloads: &[("url_get_escaped_path", PART)],
        body: |_, args| part(args, Url::escaped_path),
    },
    Row {
        name: "getQuery",
        overloads: &[("url_get_query", "kubernetes.URL.() -> map(string, list(string))")],
        body: query,
    },
];

const PART: &str = "kubernetes.URL.() -> string";

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
    context.allocate(url.query().len().saturating_mul(4))?;
    let mut by_name: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query().split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
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
