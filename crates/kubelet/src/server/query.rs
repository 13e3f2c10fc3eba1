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

    /// Go's ParseBool set.
    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
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
}
