use std::borrow::Cow;

use super::*;

mod upstream;

#[test]
fn terms_compare_fields() {
    let selector = Selector::parse("metadata.name=a,spec.nodeName!=b,status.phase==c\\,d").unwrap();
    assert!(selector.matches(|field| match field {
        "metadata.name" => Cow::from("a"),
        "status.phase" => Cow::from("c,d"),
        _ => Cow::from(""),
    }));
    assert!(!selector.matches(|_| Cow::from("b")));
    assert_eq!(selector.required("metadata.name"), Some("a"));
    assert_eq!(selector.required("spec.nodeName"), None);
}

#[test]
fn a_term_without_an_operator_is_refused() {
    let error = Selector::parse("a=b,c").unwrap_err();
    assert_eq!(error.to_string(), "invalid selector: 'a=b,c'; can't understand 'c'");
    assert!(Selector::parse("a=\\x").is_err());
    assert!(Selector::parse("").unwrap().is_everything());
}
