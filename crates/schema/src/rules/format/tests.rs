use super::*;

/// A format, texts that are of it, texts that are not.
type Case = (&'static str, &'static [&'static str], &'static [&'static str]);

const CASES: &[Case] = &[
    ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77bcf86cd79943901", "g07f1f77bcf86cd799439011"]),
    ("byte", &["YQ==", "YWJj"], &["", "YQ=", "Y Q=", "YQ==\n"]),
    (
        "cidr",
        &["10.0.0.0/8", "010.0.0.0/08", "fd00::/64"],
        &["10.0.0.0", "10.0.0.0/33", "fd00::/129", "/8", "a/8"],
    ),
    ("creditcard", &["4111-1111-1111-1111"], &["4111-1111-1111-1112", ""]),
    (
        "date",
        &["2024-02-29", "0000-01-01"],
        &["2023-02-29", "2024-2-29", "2024-01-01T00:00:00Z", "", "20240101"],
    ),
    (
        "date-time",
        &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20z", "2014-12-15T19:30:20+01:00"],
        &[
            "2014-12-15",
            "2014-12-15T24:00:00Z",
            "2014-12-15T19:60:00Z",
            "2014-12-15T19:30:20",
            "2014-13-15T19:30:20Z",
        ],
    ),
    ("datetime", &["2014-12-15T19:30:20Z"], &["now"]),
    (
        "duration",
        &["1h30m", "22 ns", "3 weeks", "-1.5s", "0"],
        &["", "1", "x", "1 fortnight", "99999999999999999999 s"],
    ),
    (
        "email",
        &["a@b.c", "A B <a@b.c>", "\"a b\"@c", "<a@b>", "a@[127.0.0.1]"],
        &["a", "@b", "a@", "a b@c", "a@b..c", "a@b>", "", "a.@b"],
    ),
    ("hexcolor", &["#fff", "00ff00"], &["#ffff", "red"]),
    (
        "hostname",
        &["a", "example.com", "1a.example.com", "bücher.example"],
        &["", "-a", "a-.b", "a_b.c", "a..b", "example.c"],
    ),
    (
        "ipv4",
        &["10.0.0.1", "010.000.0.1", "::ffff:1.2.3.4"],
        &["10.0.0", "10.0.0.256", "::1", "", "1.2.3.4.5", "a.b.c.d"],
    ),
    ("ipv6", &["::1", "fd00::1", "::ffff:1.2.3.4"], &["1.2.3.4", "fd00::1%eth0", "", ":::"]),
    ("isbn", &["0321751043", "978-0321751041"], &["0321751044", "978-0321751042", ""]),
    ("isbn10", &["0-8044-2957-X"], &["978-0321751041", "é8044-2957X"]),
    ("isbn13", &["978 0321751041"], &["0321751043"]),
    ("k8s-short-name", &["a", "a-1"], &["", "A", "-a", "a.b"]),
    ("k8s-long-name", &["a.b-1"], &["", "a..b", "A.b"]),
    (
        "mac",
        &["01:23:45:67:89:ab", "01-23-45-67-89-AB-cd-ef", "0123.4567.89ab"],
        &["01:23:45:67:89", "01:23-45:67:89:ab", ""],
    ),
    ("password", &["", "x"], &[]),
    ("rgbcolor", &["rgb(255, 0,10)"], &["rgb(256,0,0)", "rgb(1,2)"]),
    ("ssn", &["111-11-1111", "111 11 1111"], &["11111111", "111-11-111"]),
    (
        "uri",
        &[
            "http://a",
            "/a?b",
            "mailto:a@b",
            "http://u:p@[::1]:80/%41",
            "*",
            "a+b.c-1:x",
            "http://[fe80::1%25en0]/",
        ],
        &["", "a", "a/b", ":a", "http://a b", "http://a:x", "http://[::1", "/%zz", "/\n", "http://%41", "?a"],
    ),
    (
        "uuid",
        &["123e4567-e89b-12d3-a456-426614174000", "123E4567e89b12d3a456426614174000"],
        &["123e4567", ""],
    ),
    ("uuid3", &["a3bb189e-8bf9-3888-9912-ace4e6543002"], &["a3bb189e-8bf9-4888-9912-ace4e6543002"]),
    ("uuid4", &["a3bb189e-8bf9-4888-9912-ace4e6543002"], &["a3bb189e-8bf9-4888-1912-ace4e6543002"]),
    ("uuid5", &["a3bb189e-8bf9-5888-9912-ace4e6543002"], &["a3bb189e-8bf9-4888-9912-ace4e6543002"]),
];

#[test]
fn formats_take_what_upstream_takes() {
    for (name, right, wrong) in CASES {
        let format = Format::of(name, &["string"]).expect("a format");
        for text in *right {
            assert!(format.is_met_by(text), "{text:?} is of {name}");
        }
        for text in *wrong {
            assert!(!format.is_met_by(text), "{text:?} is not of {name}");
        }
    }
    let named = |name: &str| CASES.iter().any(|(tested, ..)| tested.replace('-', "") == name);
    assert_eq!(TEXTS.iter().map(|(name, _)| *name).find(|name| !named(name)), None, "is not tested");
}

#[test]
fn lengths_are_bounded() {
    for (name, length_max) in [("k8s-short-name", 63), ("hostname", 63)] {
        let format = Format::of(name, &[]).expect("a format");
        assert!(format.is_met_by(&"a".repeat(length_max)), "{name}");
        assert!(!format.is_met_by(&"a".repeat(length_max + 1)), "{name}");
    }
    let long = Format::of("k8s-long-name", &[]).expect("a format");
    assert!(long.is_met_by(&"a".repeat(253)) && !long.is_met_by(&"a".repeat(254)));
}

#[test]
fn formats_that_the_type_does_not_have_say_nothing() {
    let cases: &[(&str, &[&str], bool)] = &[
        ("int32", &["integer"], true),
        ("int32", &["number"], false),
        ("int32", &["string"], false),
        ("double", &["number"], true),
        ("date", &["integer"], false),
        ("date", &["boolean"], false),
        ("date", &["object"], false),
        ("date", &[], true),
        ("date", &["integer", "string"], true),
        ("color", &["string"], false),
    ];
    for (name, types, is_known) in cases {
        assert_eq!(Format::of(name, types).is_some(), *is_known, "{name} of {types:?}");
    }
}
