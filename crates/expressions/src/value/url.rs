//! URLs as values. Source: Go's `net/url`.

use machinery::pattern::Format;

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

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

    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn query(&self) -> &str {
        &self.query
    }

    fn port_at(&self) -> Option<usize> {
        let after = self.host.rfind(']').map_or(0, |end| end + 1);
        self.host.get(after..)?.find(':').map(|colon| after + colon)
    }

    pub(crate) fn hostname(&self) -> String {
        let name = self.port_at().and_then(|colon| self.host.get(..colon)).unwrap_or(&self.host);
        name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name).to_owned()
    }

    pub(crate) fn port(&self) -> String {
        self.port_at().and_then(|colon| self.host.get(colon + 1..)).unwrap_or_default().to_owned()
    }

    /// The path, with everything escaped that has to be.
    pub(crate) fn escaped_path(&self) -> String {
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
