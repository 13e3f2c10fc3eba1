//! The subject of a signing request: read strictly, and written in one form only.
//!
//! A name that two readers understand differently is no name. So values are UTF8String, PrintableString or IA5String
//! without control characters, there is one common name at most, and what is signed is never the bytes that were sent:
//! each value is an attribute of its own, as UTF8String (a country as PrintableString), in a fixed order.
//! Source: RFC 5280, 4.1.2.4 and appendix A.1; Go's `pkix.Name`, which keeps the same attributes.

use x509_parser::asn1_rs::{Class, Tag};
use x509_parser::der_parser::{Oid, oid};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::der::{SEQUENCE, tagged};

const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;

const COUNTRY: Oid<'static> = oid!(2.5.4.6);
const ORGANIZATION: Oid<'static> = oid!(2.5.4.10);
const COMMON_NAME: Oid<'static> = oid!(2.5.4.3);
/// What is signed, in this order: country, organization, unit, locality, province, street, postal code, common name,
/// serial number. Everything else is left out.
const KEPT: [Oid<'static>; 9] = [
    COUNTRY,
    ORGANIZATION,
    oid!(2.5.4.11),
    oid!(2.5.4.7),
    oid!(2.5.4.8),
    oid!(2.5.4.9),
    oid!(2.5.4.17),
    COMMON_NAME,
    oid!(2.5.4.5),
];

/// A subject that is not clear, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// A value of the subject could be understood in several ways.
    #[error(
        "the subject's values must be UTF8String, PrintableString or IA5String without control characters"
    )]
    Value,
    /// Nobody can say which of them is meant.
    #[error("the subject has two common names")]
    TwoNames,
}

/// A subject whose every value could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectName {
    values: Vec<(Oid<'static>, String)>,
}

impl SubjectName {
    /// Reads all attributes.
    ///
    /// # Errors
    /// A value that is empty, of another string type or with control characters; two common names.
    pub fn of(name: &X509Name<'_>) -> Result<Self, SubjectError> {
        let mut values = Vec::new();
        for attribute in name.iter_attributes() {
            values.push((attribute.attr_type().to_owned(), text(attribute)?));
        }
        let names = values.iter().filter(|(kind, _)| *kind == COMMON_NAME).count();
        if names > 1 {
            return Err(SubjectError::TwoNames);
        }
        Ok(Self { values })
    }

    /// The user; empty if there is none.
    pub fn common_name(&self) -> &str {
        let found = self.values.iter().find(|(kind, _)| *kind == COMMON_NAME);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// The groups, in the order of the request.
    pub fn organizations(&self) -> Vec<String> {
        self.all(&ORGANIZATION).map(str::to_owned).collect()
    }

    /// `true` if there is nothing but organizations and a common name.
    pub fn is_plain(&self) -> bool {
        self.values.iter().all(|(kind, _)| [ORGANIZATION, COMMON_NAME].contains(kind))
    }

    fn all<'a>(&'a self, wanted: &'a Oid<'_>) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(kind, _)| kind == wanted).map(|(_, value)| value.as_str())
    }

    /// The one form, DER.
    pub fn encoded(&self) -> Vec<u8> {
        let mut names = Vec::new();
        for kind in KEPT {
            for value in self.all(&kind) {
                // RFC 5280 wants a country as PrintableString; what is not printable is none.
                let tag = if kind == COUNTRY { PRINTABLE_STRING } else { UTF8_STRING };
                let pair = [tagged(OBJECT_ID, kind.as_bytes()), tagged(tag, value.as_bytes())].concat();
                names.extend(tagged(SET, &tagged(SEQUENCE, &pair)));
            }
        }
        tagged(SEQUENCE, &names)
    }
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, SubjectError> {
    let value = attribute.attr_value();
    let tag = value.header.tag();
    let is_string = value.header.class() == Class::Universal
        && !value.header.constructed()
        && matches!(tag, Tag::Utf8String | Tag::PrintableString | Tag::Ia5String);
    let text = std::str::from_utf8(value.data).ok().filter(|_| is_string);
    let text = text.ok_or(SubjectError::Value)?;
    let is_printable = |c: char| c.is_ascii_alphanumeric() || " '()+,-./:=?".contains(c);
    let is_of_its_type = match tag {
        Tag::Ia5String => text.is_ascii(),
        _ => true,
    };
    let is_country = *attribute.attr_type() != COUNTRY || text.chars().all(is_printable);
    if text.is_empty() || text.chars().any(char::is_control) || !is_of_its_type || !is_country {
        return Err(SubjectError::Value);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::FromDer;

    use super::*;

    const CN: &[u8] = &[0x55, 4, 3];
    const O: &[u8] = &[0x55, 4, 10];
    const UNIT: &[u8] = &[0x55, 4, 11];
    const UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

    fn pair(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        tagged(SEQUENCE, &[tagged(OBJECT_ID, kind), tagged(tag, value)].concat())
    }

    fn one(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        tagged(SET, &pair(kind, tag, value))
    }

    fn read(names: &[Vec<u8>]) -> Result<SubjectName, SubjectError> {
        let encoded = tagged(SEQUENCE, &names.concat());
        let (_, name) = X509Name::from_der(&encoded).map_err(|_| SubjectError::Value)?;
        SubjectName::of(&name)
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_be_bytes).collect()
    }

    fn utf32(text: &str) -> Vec<u8> {
        text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect()
    }

    #[test]
    fn a_value_that_readers_may_understand_differently_is_refused() {
        let node = one(CN, UTF8_STRING, b"system:node:a");
        let nodes = one(O, UTF8_STRING, b"system:nodes");
        let masters = "system:masters";
        let hostile: [(&str, Vec<u8>, SubjectError); 13] = [
            ("BMPString", one(O, 0x1e, &utf16(masters)), SubjectError::Value),
            ("T61String", one(O, 0x14, masters.as_bytes()), SubjectError::Value),
            ("UniversalString", one(O, 0x1c, &utf32(masters)), SubjectError::Value),
            ("VisibleString", one(O, 0x1a, masters.as_bytes()), SubjectError::Value),
            ("NumericString", one(O, 0x12, b"1"), SubjectError::Value),
            ("OCTET STRING", one(O, 0x04, masters.as_bytes()), SubjectError::Value),
            ("a context's tag", one(O, 0x8c, masters.as_bytes()), SubjectError::Value),
            ("empty", one(O, UTF8_STRING, b""), SubjectError::Value),
            ("NUL", one(O, UTF8_STRING, b"system:nodes\0"), SubjectError::Value),
            ("a line", one(O, PRINTABLE_STRING, b"a\nb"), SubjectError::Value),
            ("no UTF-8", one(O, UTF8_STRING, &[0xff]), SubjectError::Value),
            ("no ASCII", one(O, 0x16, "é".as_bytes()), SubjectError::Value),
            ("two common names", one(CN, UTF8_STRING, b"admin"), SubjectError::TwoNames),
        ];
        for (name, value, expected) in hostile {
            for all in [
                vec![nodes.clone(), node.clone(), value.clone()],
                vec![value.clone(), nodes.clone(), node.clone()],
            ] {
                assert_eq!(read(&all), Err(expected), "{name}");
            }
        }
        // Also where it hides beside another in one set.
        let hidden = tagged(SET, &[pair(O, UTF8_STRING, b"x"), pair(O, 0x14, b"system:masters")].concat());
        assert_eq!(read(&[hidden, node]), Err(SubjectError::Value));
    }

    #[test]
    fn a_subject_is_written_in_one_form_whatever_form_it_came_in() {
        let wanted = [
            one(O, UTF8_STRING, b"one"),
            one(O, UTF8_STRING, b"two"),
            one(UNIT, UTF8_STRING, b"u"),
            one(CN, UTF8_STRING, b"anna"),
        ];
        let wanted = tagged(SEQUENCE, &wanted.concat());
        let in_one_set = [
            pair(CN, PRINTABLE_STRING, b"anna"),
            pair(O, 0x16, b"one"),
            pair(O, UTF8_STRING, b"two"),
            pair(UNIT, UTF8_STRING, b"u"),
            pair(UID, UTF8_STRING, b"0"),
        ];
        let forms = [
            vec![tagged(SET, &in_one_set.concat())],
            vec![
                one(CN, UTF8_STRING, b"anna"),
                one(UNIT, PRINTABLE_STRING, b"u"),
                one(O, 0x16, b"one"),
                one(O, PRINTABLE_STRING, b"two"),
            ],
        ];
        for form in forms {
            let name = read(&form).expect("readable");
            assert_eq!(
                (name.common_name(), name.organizations()),
                ("anna", vec!["one".into(), "two".into()])
            );
            assert_eq!(name.encoded(), wanted);
            assert!(!name.is_plain());
        }
        let empty = read(&[]).expect("readable");
        assert_eq!((empty.common_name(), empty.encoded()), ("", vec![SEQUENCE, 0]));
        assert!(read(&[one(O, UTF8_STRING, b"o"), one(CN, UTF8_STRING, b"c")]).expect("readable").is_plain());
    }
}
