use super::*;

mod upstream;

#[test]
fn a_bad_subdomain_names_the_rule_and_its_regex() {
    assert_eq!(
        dns1123_subdomain("Bad_Name"),
        [
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ]
    );
}

#[test]
fn two_examples_are_joined_by_or() {
    assert_eq!(
        dns1035_label("1a"),
        [
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
}

#[test]
fn good_texts_break_no_rule() {
    assert!(dns1123_label("web-1").is_empty());
    assert!(dns1123_subdomain("a.b-c.d").is_empty());
    assert!(qualified_name("example.com/My_Name").is_empty());
    assert!(label_value("").is_empty());
    assert!(config_map_key("a.b").is_empty());
    assert!(port_name("http").is_empty());
}

#[test]
fn bad_texts_break_as_many_rules_as_upstream_counts() {
    let cases: &[(&str, Vec<String>, usize)] = &[
        ("label with dot", dns1123_label("a.b"), 1),
        ("empty subdomain", dns1123_subdomain(""), 1),
        ("two slashes", qualified_name("a/b/c"), 1),
        ("empty name", qualified_name("a/"), 2),
        ("empty prefix", qualified_name("/a"), 1),
        ("long value", label_value(&"x".repeat(64)), 1),
        ("port only digits", port_name("123"), 1),
        ("dots", config_map_key(".."), 1),
        ("zero port", port_number(0), 1),
        ("path", path_segment("a/b%"), 2),
    ];
    for (name, errors, count) in cases {
        assert_eq!(errors.len(), *count, "{name}: {errors:?}");
    }
}
