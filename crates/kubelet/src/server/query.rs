//! Query strings.

/// Names and values in order, decoded.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| value.clone()).collect()
    }

    /// Whether it is on.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(crate::config::flag::flag).unwrap_or_default()
    }
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let decoded = match byte {
            b'+' => b' ',
            b'%' => {
                let rest = bytes.as_slice_pair();
                match rest {
                    Some((value, remaining)) => {
                        bytes = remaining;
                        value
                    }
                    None => b'%',
                }
            }
            other => other,
        };
        out.push(decoded);
    }
    String::from_utf8_lossy(&out).into_owned()
}

trait HexPair: Sized {
    /// The byte that the next two hexadecimal digits make, and what follows.
    fn as_slice_pair(&self) -> Option<(u8, Self)>;
}

impl HexPair for std::str::Bytes<'_> {
    fn as_slice_pair(&self) -> Option<(u8, Self)> {
        let mut rest = self.clone();
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        Some((u8::try_from(high * 16 + low).ok()?, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_and_encoded_values_are_read() {
        let query = Query::of(Some("command=sh&command=-c&command=echo%20%22a%22+b&tty=1"));
        assert_eq!(query.all("command"), ["sh", "-c", "echo \"a\" b"]);
        assert!(query.flag("tty") && !query.flag("stdin"));
    }

    #[test]
    fn values_are_decoded_or_left_as_they_are() {
        for (text, name, expect) in [
            (None, "a", None),
            (Some(""), "a", None),
            (Some("a"), "a", Some("")),
            (Some("a="), "a", Some("")),
            (Some("a=b=c"), "a", Some("b=c")),
            (Some("a=1&a=2"), "a", Some("1")),
            (Some("&&a=1&"), "a", Some("1")),
            (Some("%61=1"), "a", Some("1")),
            (Some("a=%E2%82%AC"), "a", Some("€")),
            (Some("a=%2B+%20"), "a", Some("+  ")),
            (Some("a=%"), "a", Some("%")),
            (Some("a=%4"), "a", Some("%4")),
            (Some("a=%zz"), "a", Some("%zz")),
            (Some("a=%+1"), "a", Some("% 1")),
            (Some("a=%ff"), "a", Some("\u{fffd}")),
            (Some("A=1"), "a", None),
        ] {
            assert_eq!(Query::of(text).get(name), expect, "{text:?}");
        }
        for (text, expect) in
            [("a=true", true), ("a=T", true), ("a=0", false), ("a=yes", false), ("a", false)]
        {
            assert_eq!(Query::of(Some(text)).flag("a"), expect, "{text}");
        }
        assert!(Query::of(Some("b=1")).all("a").is_empty());
    }
}
