//! Formats of texts and numbers (`format`), as far as Kubernetes knows them; others say nothing.
//!
//! Source: `k8s.io/kube-openapi/pkg/validation/strfmt` and `pkg/internal/third_party/govalidator`,
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/validation/formats.go`.

mod email;
mod net;
mod numbers;
mod time;
mod uri;

use std::sync::LazyLock;

use regex::Regex;

/// Whether a text is of a format.
type Check = fn(&str) -> bool;

/// A format that is known for the type at hand.
#[derive(Clone, Debug)]
pub struct Format {
    /// Its name as it was written.
    pub name: String,
    check: Option<Check>,
}

/// Names without their dashes, and what they mean.
const TEXTS: &[(&str, Check)] = &[
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    ("byte", |text| BASE64.is_match(text)),
    ("cidr", net::is_cidr),
    ("creditcard", numbers::is_credit_card),
    ("date", time::is_date),
    ("datetime", time::is_date_time),
    ("duration", time::is_duration),
    ("email", email::is_email),
    ("hexcolor", |text| HEX_COLOR.is_match(text)),
    ("hostname", is_hostname),
    ("ipv4", net::is_ipv4),
    ("ipv6", net::is_ipv6),
    ("isbn", |text| numbers::is_isbn10(text) || numbers::is_isbn13(text)),
    ("isbn10", numbers::is_isbn10),
    ("isbn13", numbers::is_isbn13),
    ("k8slongname", |text| text.len() <= LONG_NAME_BYTES_MAX && LONG_NAME.is_match(text)),
    ("k8sshortname", |text| text.len() <= SHORT_NAME_BYTES_MAX && SHORT_NAME.is_match(text)),
    ("mac", net::is_mac),
    ("password", |_| true),
    ("rgbcolor", |text| RGB_COLOR.is_match(text)),
    ("ssn", |text| text.len() == 11 && SSN.is_match(text)),
    ("uri", uri::is_request_uri),
    ("uuid", |text| UUID.is_match(text)),
    ("uuid3", |text| UUID3.is_match(text)),
    ("uuid4", |text| UUID4.is_match(text)),
    ("uuid5", |text| UUID5.is_match(text)),
];

const SHORT_NAME_BYTES_MAX: usize = 63;
const LONG_NAME_BYTES_MAX: usize = 253;
const HOSTNAME_BYTES_MAX: usize = 255;
const HOSTNAME_LABEL_BYTES_MAX: usize = 63;

static BASE64: LazyLock<Regex> = LazyLock::new(|| {
    constant("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
});
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| constant("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*";
    constant(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static SSN: LazyLock<Regex> = LazyLock::new(|| constant("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static SHORT_NAME: LazyLock<Regex> = LazyLock::new(|| constant("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static LONG_NAME: LazyLock<Regex> =
    LazyLock::new(|| constant(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let letter = r"a-zA-Z0-9\p{S}\p{L}";
    let label = format!(r"[{letter}](([-{letter}]{{0,61}}[{letter}])?)");
    constant(&format!(r"^([{letter}]((-?[{letter}]{{0,62}})?)|({label}\.)+[a-zA-Z\p{{L}}]{{2,63}})$"))
});
static UUID: LazyLock<Regex> = LazyLock::new(|| uuid("[0-9a-f]{4}", "[0-9a-f]{4}"));
static UUID3: LazyLock<Regex> = LazyLock::new(|| uuid("3[0-9a-f]{3}", "[0-9a-f]{4}"));
static UUID4: LazyLock<Regex> = LazyLock::new(|| uuid("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"));
static UUID5: LazyLock<Regex> = LazyLock::new(|| uuid("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"));

fn uuid(third: &str, fourth: &str) -> Regex {
    constant(&format!("(?i-u)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}$"))
}

#[expect(clippy::expect_used, reason = "the tests of this module use every expression")]
fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("an expression that is part of the program")
}

fn is_hostname(text: &str) -> bool {
    text.len() <= HOSTNAME_BYTES_MAX
        && HOSTNAME.is_match(text)
        && text.split('.').all(|label| label.len() <= HOSTNAME_LABEL_BYTES_MAX)
}

impl Format {
    /// The format of this name for values of these types; `None` if it says nothing about them.
    pub fn of(name: &str, types: &[&str]) -> Option<Self> {
        let (is_known, check) = match types {
            ["integer"] => (matches!(name, "int32" | "int64"), None),
            ["number"] => (matches!(name, "float" | "double"), None),
            [] | ["string"] | [_, _, ..] => {
                let plain = name.replace('-', "");
                let row = TEXTS.iter().find(|(known, _)| *known == plain);
                (row.is_some(), row.map(|(_, check)| *check))
            }
            _ => (false, None),
        };
        is_known.then(|| Self { name: name.to_owned(), check })
    }

    /// `true` if it is one of numbers, which says nothing about texts.
    pub fn is_of_numbers(&self) -> bool {
        self.check.is_none()
    }

    /// `true` if a text is of this format; formats of numbers say nothing about texts.
    pub fn is_met_by(&self, text: &str) -> bool {
        self.check.is_none_or(|check| check(text))
    }
}

#[cfg(test)]
mod tests;
