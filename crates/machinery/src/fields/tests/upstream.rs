//! The cases of upstream's `fields/selector_test.go`.

use std::borrow::Cow;

use super::*;

/// The terms as `field=value`, their escapes undone.
fn read(text: &str) -> Result<String, String> {
    let selector = Selector::parse(text).map_err(|error| error.to_string())?;
    let term = |term: &Term| {
        let operator = if term.is_negated { "!=" } else { "=" };
        format!("{}{operator}{}", term.field, term.value)
    };
    Ok(selector.terms.iter().map(term).collect::<Vec<_>>().join(" "))
}

#[test]
fn terms_are_read_and_their_values_unescaped() {
    for (text, expect) in [
        ("x=a,y=b,z=c", "x=a y=b z=c"),
        ("", ""),
        (",,", ""),
        ("x!=a,y=b", "x!=a y=b"),
        ("x==a", "x=a"),
        (r"x=a||y\=b", "x=a||y=b"),
        (r"x=a\=\=b", "x=a==b"),
        (r"x=\,a\\", r"x=,a\"),
        (r"x=a\,b,y=c", "x=a,b y=c"),
        ("x=", "x="),
        ("=a", "=a"),
        ("x!!=a", "x!!=a"),
    ] {
        assert_eq!(read(text).as_deref(), Ok(expect), "{text}");
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    for (text, why) in [
        ("x=a||y=b", "invalid field selector: unescaped character in value: 61"),
        ("x==a==b", "invalid field selector: unescaped character in value: 61"),
        ("x=a,b", "invalid selector: 'x=a,b'; can't understand 'b'"),
        ("x in (a)", "invalid selector: 'x in (a)'; can't understand 'x in (a)'"),
        ("x", "invalid selector: 'x'; can't understand 'x'"),
        (r"x=\x", r"invalid field selector: invalid escape sequence: \x"),
        (r"x=a\", r"invalid field selector: invalid escape sequence: \"),
        // The first in the order of their texts is told.
        (r"z,b=\x", r"invalid field selector: invalid escape sequence: \x"),
    ] {
        assert_eq!(read(text), Err(why.to_owned()), "{text}");
    }
}

#[test]
fn every_term_must_hold() {
    for (text, fields, expect) in [
        ("", &[("x", "y")][..], true),
        ("x=y", &[("x", "y")], true),
        ("x=y,z=w", &[("x", "y"), ("z", "w")], true),
        ("x!=y,z!=w", &[("x", "z"), ("z", "a")], true),
        ("notin=in", &[("notin", "in")], true),
        ("x=z", &[], false),
        ("x=y", &[("x", "z")], false),
        ("x=y,z=w", &[("x", "w"), ("z", "w")], false),
        ("x!=y,z!=w", &[("x", "z"), ("z", "w")], false),
        ("x!=y", &[], true),
        ("x=", &[], true),
    ] {
        let get = |field: &str| {
            let found = fields.iter().find(|(name, _)| *name == field);
            Cow::from(found.map_or("", |(_, value)| *value))
        };
        assert_eq!(Selector::parse(text).expect("a selector").matches(get), expect, "{text} {fields:?}");
    }
}
