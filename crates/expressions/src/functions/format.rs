//! Named formats: `format.dns1123Label().validate(name)`. Source: `k8s.io/apiserver/pkg/cel/library/format.go`.

use machinery::names;
use machinery::pattern::Format;

use super::{Answer, Row, no_overload};
use crate::context::Context;
use crate::value::{NamedFormat, Value};

const MADE: &str = "() -> kubernetes.NamedFormat";

macro_rules! made {
    ($($name:literal),* $(,)?) => {
        pub(super) const ROWS: &[Row] = &[
            $(Row {
                name: concat!("format.", $name),
                overloads: &[(concat!("format.", $name), MADE)],
                body: |_, _| named($name),
            },)*
            Row { name: "format.named", overloads: &[("format-named", "(string) -> optional(kubernetes.NamedFormat)")], body: by_name },
            Row {
                name: "validate",
                overloads: &[("format-validate", "kubernetes.NamedFormat.(string) -> optional(list(string))")],
                body: validate,
            },
        ];
    };
}

made! {
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix",
    "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte",
    "date", "datetime",
}

/// By the name that expressions use.
const FORMATS: &[(&str, NamedFormat)] = &[
    ("dns1123Label", NamedFormat { name: "DNS1123Label", validate: names::dns1123_label, pattern_size: 30 }),
    (
        "dns1123Subdomain",
        NamedFormat { name: "DNS1123Subdomain", validate: names::dns1123_subdomain, pattern_size: 60 },
    ),
    ("dns1035Label", NamedFormat { name: "DNS1035Label", validate: names::dns1035_label, pattern_size: 30 }),
    (
        "qualifiedName",
        NamedFormat { name: "QualifiedName", validate: names::qualified_name, pattern_size: 60 },
    ),
    (
        "dns1123LabelPrefix",
        NamedFormat {
            name: "DNS1123LabelPrefix",
            validate: |text| names::dns1123_label(&names::masked_prefix(text)),
            pattern_size: 30,
        },
    ),
    (
        "dns1123SubdomainPrefix",
        NamedFormat {
            name: "DNS1123SubdomainPrefix",
            validate: |text| names::dns1123_subdomain(&names::masked_prefix(text)),
            pattern_size: 60,
        },
    ),
    (
        "dns1035LabelPrefix",
        NamedFormat {
            name: "DNS1035LabelPrefix",
            validate: |text| names::dns1035_label(&names::masked_prefix(text)),
            pattern_size: 30,
        },
    ),
    ("labelValue", NamedFormat { name: "LabelValue", validate: names::label_value, pattern_size: 40 }),
    ("uri", NamedFormat { name: "URI", validate: uri, pattern_size: 1103 }),
    (
        "uuid",
        NamedFormat {
            name: "uuid",
            validate: |text| of("uuid", "does not match the UUID format", text),
            pattern_size: 71,
        },
    ),
    (
        "byte",
        NamedFormat { name: "byte", validate: |text| of("byte", "invalid base64", text), pattern_size: 84 },
    ),
    (
        "date",
        NamedFormat { name: "date", validate: |text| of("date", "invalid date", text), pattern_size: 45 },
    ),
    (
        "datetime",
        NamedFormat {
            name: "datetime",
            validate: |text| of("datetime", "invalid datetime", text),
            pattern_size: 45,
        },
    ),
];

fn of(format: &str, message: &str, text: &str) -> Vec<String> {
    let is_met = Format::of(format, &["string"]).is_some_and(|format| format.is_met_by(text));
    if is_met { Vec::new() } else { vec![message.to_owned()] }
}

fn uri(text: &str) -> Vec<String> {
    of("uri", &format!("parse {text:?}: invalid URI for request"), text)
}

fn find(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| format)
}

fn named<'a>(name: &str) -> Answer<'a> {
    find(name).map_or_else(no_overload, |format| Ok(Value::Format(format)))
}

fn by_name<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(name)] = args else { return no_overload() };
    Ok(find(name).map_or(Value::Optional(None), |format| Value::some(Value::Format(format))))
}

fn validate<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Format(format), Value::String(text)] = args else { return no_overload() };
    let wrong: Vec<Value<'a>> = (format.validate)(text).into_iter().map(Value::text).collect();
    Ok(if wrong.is_empty() { Value::Optional(None) } else { Value::some(Value::list(wrong)) })
}
