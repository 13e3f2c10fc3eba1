//! The cases of upstream's `validation_test.go`.

use super::*;

/// Whether the rule takes each of these texts, which spaces never are in.
fn check(rule: fn(&str) -> Vec<String>, takes: bool, texts: &str) {
    for text in texts.split(' ').filter(|text| !text.is_empty()) {
        assert_eq!(rule(text).is_empty(), takes, "{text:?}: {:?}", rule(text));
    }
}

fn a(times: usize) -> String {
    "a".repeat(times)
}

/// What neither kind of label takes, nor a subdomain.
const NEVER: &str = "A ABC aBc A1 A-1 1-A - a- -a 1- -1 _ a_ _a a_b 1_ _1 1_2 . a. .a 1. .1";

#[test]
fn labels_and_subdomains_are_dns() {
    let good = "a ab abc a1 a-1 a--1--2--b";
    let numbers = "0 01 012 1a 1-a 1--a--b--2";
    for (rule, takes_numbers, takes_dots, max) in [
        (dns1123_label as fn(&str) -> Vec<String>, true, false, 63),
        (dns1035_label, false, false, 63),
        (dns1123_subdomain, true, true, 253),
    ] {
        check(rule, true, good);
        check(rule, takes_numbers, numbers);
        check(rule, false, NEVER);
        check(rule, takes_dots, "a.a ab.a abc.a a1.a a-1.a a--1--2--b.a a.b.c.d.e aa.bb.cc.dd.ee");
        check(rule, takes_dots, "a.1 0.a 01.a 1-a.a 0.1 01.1 012.1 1a.1 1.2.3.4.5 11.22.33.44.55");
        check(
            rule,
            false,
            "a..b 1..2 A.a aB.a ab.A A1.a A.1 0.A 1A.a A.B.C.D.E a.B.c.d.e a@b a,b a;b a:b a%b a?b a$b",
        );
        for text in ["", " ", "a ", " a", "a b", "1 ", " 1", "1 2", "a\n"] {
            assert!(!rule(text).is_empty(), "{text:?}");
        }
        assert!(rule(&a(max)).is_empty());
        assert_eq!(rule(&a(max + 1)), [format!("must be no more than {max} characters")]);
    }
    check(wildcard_dns1123_subdomain, true, "*.example.com *.bar.com *.foo.bar.com");
    check(wildcard_dns1123_subdomain, false, "*.*.bar.com *.foo.*.com *bar.com f*.bar.com *");
}

#[test]
fn keys_and_values_of_labels() {
    check(
        qualified_name,
        true,
        "simple now-with-dashes 1-starts-with-num 1234 simple/simple now-with-dashes/simple now-with-dashes/now-with-dashes \
         now.with.dots/simple now-with.dashes-and.dots/simple 1-num.2-num/3-num 1234/5678 1.2.3.4/5678 Uppercase_Is_OK_123 \
         example.com/Uppercase_Is_OK_123 requests.storage-foo",
    );
    check(
        qualified_name,
        false,
        "nospecialchars%^=@ cantendwithadash- -cantstartwithadash- only/one/slash Example.com/abc example_com/abc \
         example.com/ /simple",
    );
    assert!(qualified_name(&format!("{}/{}", a(253), a(63))).is_empty());
    check(label_value, true, "simple now-with-dashes 1-starts-with-num end-with-num-1 1234");
    check(
        label_value,
        false,
        "nospecialchars%^=@ Tama-nui-te-rā.is.Māori.sun \\backslashes\\are\\bad -starts-with-dash ends-with-dash- \
         .starts.with.dot ends.with.dot.",
    );
    assert!(label_value("").is_empty() && label_value(&a(63)).is_empty());
}

/// Keys and values of labels have other words than names of objects.
#[test]
fn what_is_too_long_of_a_label_is_told_in_bytes() {
    assert_eq!(label_value(&a(64)), ["must be no more than 63 bytes"]);
    assert_eq!(qualified_name(&a(64)), ["name part must be no more than 63 bytes"]);
    assert_eq!(qualified_name(&format!("{}/a", a(254))), ["prefix part must be no more than 253 bytes"]);
    assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
    let slashes = qualified_name("a/b/c");
    let [text] = &slashes[..] else { panic!("{slashes:?}") };
    assert!(text.starts_with("a valid label key must consist of alphanumeric characters, "), "{text}");
    assert!(
        text.ends_with(" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"),
        "{text}"
    );
}

#[test]
fn ports_and_keys_of_maps() {
    check(port_name, true, "telnet re-mail-ck pop3 a a-1 1-a a-1-b-2-c 1-a-2-b-3");
    check(
        port_name,
        false,
        "longerthan15characters aaaaaaaaaaaaaaaa 12345 1-2-3-4 -begin end- two--hyphens whois++ Upper",
    );
    assert!(!port_name("").is_empty());
    for (port, takes) in [(1, true), (1000, true), (65_535, true), (0, false), (-1, false), (65_536, false)] {
        assert_eq!(port_number(port).is_empty(), takes, "{port}");
    }
    check(
        config_map_key,
        true,
        "a good good-good still.good this.is.also.good .so.is.this THIS_IS_GOOD so_is_this_17 a..b",
    );
    check(config_map_key, false, ". .. ..bad b*d bad!&bad a/b");
    assert!(
        config_map_key(&a(253)).is_empty()
            && !config_map_key(&a(254)).is_empty()
            && !config_map_key("").is_empty()
    );
    check(env_var_name, true, "- a . ..bad x-y 7 !\"#$%&'()*+,-./0:;<>?@A[\\]^_`a{|}~");
    check(env_var_name, false, "a= = a=b é");
}
