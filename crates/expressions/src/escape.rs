//! Names of fields as identifiers of CEL: what no identifier can hold is written as `__dash__` and the like.
//!
//! Source: `k8s.io/apiserver/pkg/cel/escaping.go`.

/// What is replaced, and by what.
const SEQUENCES: &[(&str, &str)] =
    &[("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// Words that identifiers may not be.
pub const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier that stands for a field; `None` if there is none, so that expressions cannot see it.
#[must_use]
pub fn escape(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        if let Some((plain, sequence)) = SEQUENCES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            escaped.push_str(sequence);
            rest = rest.strip_prefix(plain).unwrap_or_default();
            continue;
        }
        if !character.is_ascii_alphanumeric() && character != '_' {
            return None;
        }
        escaped.push(character);
        rest = rest.strip_prefix(character).unwrap_or_default();
    }
    Some(escaped)
}

/// The key that an identifier stands for; `None` if it stands for none.
pub(crate) fn unescape(identifier: &str) -> Option<String> {
    let mut plain = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some((before, marked)) = rest.split_once("__") {
        plain.push_str(before);
        let Some((word, after)) = marked.split_once("__") else {
            plain.push_str("__");
            rest = marked;
            break;
        };
        let known = SEQUENCES.iter().find(|(_, sequence)| sequence.trim_matches('_') == word);
        match known {
            Some((meant, _)) => plain.push_str(meant),
            None if RESERVED.contains(&word) && word.len() + 4 == identifier.len() => plain.push_str(word),
            None => return None,
        }
        rest = after;
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_stand_for_keys() {
        for (key, identifier) in [
            ("plain", Some("plain")),
            ("email_verified", Some("email_verified")),
            ("kubernetes.io", Some("kubernetes__dot__io")),
            ("a-b/c", Some("a__dash__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("in", Some("__in__")),
            ("1a", None),
            ("a b", None),
        ] {
            assert_eq!(escape(key).as_deref(), identifier, "{key}");
            if let Some(identifier) = identifier {
                assert_eq!(unescape(identifier).as_deref(), Some(key));
            }
        }
        for (identifier, key) in
            [("a__", Some("a__")), ("__", Some("__")), ("a__x__b", None), ("a__in__", None)]
        {
            assert_eq!(unescape(identifier).as_deref(), key, "{identifier}");
        }
    }
}
