use super::*;

mod upstream;

#[test]
fn texts_become_canonical() {
    let cases = [
        ("100m", "100m"),
        ("0.1", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("12e6", "12e6"),
        ("1000", "1k"),
        ("128974848", "128974848"),
        ("129M", "129M"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-1", "-1"),
        ("+5", "5"),
        (".5", "500m"),
        ("5.", "5"),
        ("0.0000000001", "1n"),
        ("1E", "1E"),
        ("100E", "100E"),
    ];
    for (text, canonical) in cases {
        assert_eq!(text.parse::<Quantity>().unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn bad_texts_are_refused() {
    for text in ["", "a", "1.2.3", "1x", "1Kii", "- 1", "1 Gi", "1e", "--1"] {
        assert!(text.parse::<Quantity>().is_err(), "{text}");
    }
}

#[test]
fn amounts_compare_and_add_across_formats() {
    let q = |text: &str| text.parse::<Quantity>().unwrap();
    assert!(q("1Gi") > q("1G"));
    assert_eq!(q("1000m"), q("1"));
    assert_eq!(q("1Gi").plus(q("1Gi")).to_string(), "2Gi");
    assert_eq!(q("1").minus(q("100m")).milli_value(), 900);
    assert_eq!(q("100m").value(), 1);
    assert_eq!(q("1Ki").value(), 1024);
}

#[test]
fn hostile_lengths_take_bounded_time() {
    let digits = "9".repeat(100_000);
    assert_eq!(digits.parse::<Quantity>().unwrap().value(), i64::MAX);
    assert_eq!("1e2147483647".parse::<Quantity>().unwrap().value(), i64::MAX);
    assert_eq!("1e-2147483648".parse::<Quantity>().unwrap().to_string(), "1e-9");
}
