//! Source of the cases: `TestParseAddr` of Go's `netip_test.go`.

use super::*;

#[test]
fn addresses_are_read_as_go_reads_them() {
    for (text, expect, zone) in [
        ("0.0.0.0", "0.0.0.0", None),
        ("192.168.140.255", "192.168.140.255", None),
        ("::", "::", None),
        ("::1", "::1", None),
        ("fd7a:115c:a1e0:ab12:4843:cd96:626b:430b", "fd7a:115c:a1e0:ab12:4843:cd96:626b:430b", None),
        ("fd7a:115c::626b:430b", "fd7a:115c::626b:430b", None),
        ("fd7a:115c:a1e0:ab12:4843:cd96::", "fd7a:115c:a1e0:ab12:4843:cd96::", None),
        ("fd7a:115c:a1e0:ab12:4843:cd96:626b::", "fd7a:115c:a1e0:ab12:4843:cd96:626b:0", None),
        ("fd7a:115c:a1e0::4843:cd96:626b:430b", "fd7a:115c:a1e0:0:4843:cd96:626b:430b", None),
        ("::ffff:192.168.140.255", "::ffff:192.168.140.255", None),
        ("::ffff:192.168.140.255%eth1", "::ffff:192.168.140.255", Some("eth1")),
        (
            "fd7a:115c:a1e0:ab12:4843:cd96:626b:430b%eth0",
            "fd7a:115c:a1e0:ab12:4843:cd96:626b:430b",
            Some("eth0"),
        ),
        ("1:2::ffff:192.168.140.255%eth1", "1:2::ffff:c0a8:8cff", Some("eth1")),
        ("1::1%::1%eth0", "1::1", Some("::1%eth0")),
        ("FD9E:1A04:F01D::1", "fd9e:1a04:f01d::1", None),
        ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304", None),
    ] {
        let read = address(text).map(|(address, zone)| (address.to_string(), zone));
        assert_eq!(read, Ok((expect.to_owned(), zone)), "{text}");
    }
}

#[test]
fn what_is_no_address_is_told_why() {
    for (text, why) in [
        ("", "unable to parse IP"),
        ("bad", "unable to parse IP"),
        ("1234", "unable to parse IP"),
        ("eth0%", "missing IPv6 address"),
        ("%eth0", "missing IPv6 address"),
        ("1a.2.3.4", "unexpected character (at \"a.2.3.4\")"),
        ("1.a2.3.4", "unexpected character (at \"a2.3.4\")"),
        ("1.2.3.4:80", "unexpected character (at \":80\")"),
        ("1.2.3.é", "unexpected character (at \"é\")"),
        (".1.2.3", "IPv4 field must have at least one digit (at \".1.2.3\")"),
        ("1.2.3.", "IPv4 field must have at least one digit (at \".\")"),
        ("1..2.3", "IPv4 field must have at least one digit (at \".2.3\")"),
        ("1.2.3", "IPv4 address too short"),
        ("1.2.3.4.5", "IPv4 address too long"),
        ("0300.0250.0214.0377", "IPv4 field has octet with leading zero"),
        ("192.168.0.00", "IPv4 field has octet with leading zero"),
        ("192.168.300.1", "IPv4 field has value >255"),
        ("192.168.0.1.5.6", "IPv4 address too long"),
        ("1:2:3:4:5:6:7", "address string too short"),
        ("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")"),
        ("1:2:3:4::5:6:7:8", "the :: must expand to at least one field of zeros"),
        ("fe801::1", "each group must have 4 or less digits (at \"fe801::1\")"),
        ("fe80:tail.scal.e", "each colon-separated field must have at least one digit (at \"tail.scal.e\")"),
        ("fe80:tail:scal:e", "each colon-separated field must have at least one digit (at \"tail:scal:e\")"),
        ("::ffff:0:0:192.168.140.255", ""),
        ("::ffff:192.168.140.500", "IPv4 field has value >255"),
        (
            "ffff:192.168.140.255",
            "embedded IPv4 address must replace the final 2 fields of the address (at \"192.168.140.255\")",
        ),
        (
            "1::2:3:4:5:6:7:1.2.3.4",
            "too many hex fields to fit an embedded IPv4 at the end of the address (at \"1.2.3.4\")",
        ),
        ("fe80::1::1", "multiple :: in address (at \":1\")"),
        ("fe80:1?:1", "unexpected character, want colon (at \"?:1\")"),
        ("fe80:", "colon must be followed by more characters (at \":\")"),
        (":1:2", "each colon-separated field must have at least one digit (at \":1:2\")"),
        (":::", "each colon-separated field must have at least one digit (at \":\")"),
        ("::%", "zone must be a non-empty string"),
        ("fe80::1cc0:3e8c:119f:c2e1%", "zone must be a non-empty string"),
    ] {
        let told = address(text).map_or_else(|error| error.to_string(), |_| String::new());
        let expect = if why.is_empty() { String::new() } else { format!("ParseAddr({text:?}): {why}") };
        assert_eq!(told, expect, "{text}");
    }
}
