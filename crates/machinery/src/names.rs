//! Rules for names, labels and annotations keys, with upstream's texts.
//!
//! Each function returns the broken rules, none if the text is good.
//! Source: `k8s.io/apimachinery/pkg/util/validation` and `pkg/api/validation`.

use crate::field::{FieldError, Path};

/// Longest DNS-1123 label, DNS-1035 label, and name part of a label key.
pub const LABEL_BYTES_MAX: usize = 63;
/// Longest DNS-1123 subdomain.
pub const SUBDOMAIN_BYTES_MAX: usize = 253;

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1123_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// What the path of a URL may consist of.
const HTTP_PATH: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";

/// `text (e.g. 'a',  or 'b', regex used for validation is 'r')`, with both spaces that upstream has before the "or".
fn regex_error(text: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn too_long(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} characters")
}

/// The same of a label's key or value. Source: `pkg/api/validate/content`, which has another word for it.
fn too_long_bytes(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} bytes")
}

fn is_lower_or_digit(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn framed(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&a), Some(&b)) if edge(a) && edge(b))
        && bytes.iter().all(|&b| inner(b))
}

fn is_label_1123(text: &str) -> bool {
    framed(text, is_lower_or_digit, |b| is_lower_or_digit(b) || b == b'-')
}

fn is_qualified_part(text: &str) -> bool {
    framed(
        text,
        |b| b.is_ascii_alphanumeric(),
        |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'),
    )
}

/// A DNS-1123 label, such as a container's name.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_BYTES_MAX {
        errors.push(too_long(LABEL_BYTES_MAX));
    }
    if !is_label_1123(text) {
        // A text that is a good subdomain only breaks the rule about dots.
        errors.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            regex_error(LABEL_1123_TEXT, LABEL_1123, &["my-name", "123-abc"])
        });
    }
    errors
}

fn is_subdomain(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(is_label_1123)
}

/// A DNS-1123 subdomain, the rule for most objects' names.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    subdomain(text, too_long)
}

fn subdomain(text: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_BYTES_MAX {
        errors.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    if !is_subdomain(text) {
        let regex = format!("{LABEL_1123}(\\.{LABEL_1123})*");
        errors.push(regex_error(SUBDOMAIN_TEXT, &regex, &["example.com"]));
    }
    errors
}

/// A DNS-1123 subdomain that may also hold underscores; used for objects such as Node-scoped tokens.
pub fn wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_BYTES_MAX {
        errors.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        let regex = format!("\\*\\.{LABEL_1123}(\\.{LABEL_1123})*");
        errors.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &regex,
            &["*.example.com"],
        ));
    }
    errors
}

/// A DNS-1035 label, the rule for Service names before upstream relaxed it.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_BYTES_MAX {
        errors.push(too_long(LABEL_BYTES_MAX));
    }
    if !(is_label_1123(text) && text.as_bytes().first().is_some_and(u8::is_ascii_lowercase)) {
        errors.push(regex_error(LABEL_1035_TEXT, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    errors
}

/// A qualified name: an optional DNS subdomain prefix and `/`, then a name; label and annotation keys.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            let text = format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_error(QUALIFIED_TEXT, QUALIFIED, &["MyName", "my.name", "123-abc"])
            );
            return vec![text];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                let broken = subdomain(prefix, too_long_bytes);
                errors.extend(broken.into_iter().map(|error| format!("prefix part {error}")));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        errors.push(format!("name part {}", too_long_bytes(LABEL_BYTES_MAX)));
    }
    if !is_qualified_part(name) {
        errors.push(format!(
            "name part {}",
            regex_error(QUALIFIED_TEXT, QUALIFIED, &["MyName", "my.name", "123-abc"])
        ));
    }
    errors
}

/// The value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_BYTES_MAX {
        errors.push(too_long_bytes(LABEL_BYTES_MAX));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_BYTES_MAX {
        errors.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    let is_good = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !is_good {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of an environment variable: any printable ASCII but `=`.
pub fn env_var_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    } else if !text.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        errors.push("a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned());
    }
    errors
}

/// The name of a port: at most 15 of `[a-z0-9-]`, with a letter, no `--`, no `-` at either end.
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push(too_long(15));
    }
    if !text.bytes().all(|b| is_lower_or_digit(b) || b == b'-') || text.is_empty() {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A port number, 1 to 65535.
pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) {
        return Vec::new();
    }
    vec!["must be between 1 and 65535, inclusive".to_owned()]
}

/// A name that is one segment of a URL path; the rule for RBAC kinds.
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].iter().filter(|c| text.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// A path that begins with a domain, such as `acme.io/foo`.
pub fn domain_prefixed_path(at: &Path, text: &str) -> Vec<FieldError> {
    if text.is_empty() {
        return vec![FieldError::required(at, "")];
    }
    let Some((host, path)) = text.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty())
    else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(at, text, why)];
    };
    let mut errors: Vec<_> =
        dns1123_subdomain(host).iter().map(|rule| FieldError::invalid(at, host, rule)).collect();
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(is_good) {
        let rule = format!("Invalid path (regex used for validation is '{HTTP_PATH}')");
        errors.push(FieldError::invalid(at, path, &rule));
    }
    errors
}

/// `name` as it is checked when it is only the prefix of a generated name: a trailing `-` is allowed.
pub fn masked_prefix(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) => format!("{rest}a"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
