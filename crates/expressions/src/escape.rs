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
