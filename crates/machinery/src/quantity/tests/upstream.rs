//! The cases of upstream's `quantity_test.go`.

use super::*;
use Format::{BinarySi, DecimalExponent, DecimalSi};

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The amount as `number * 10^exponent`, and the format; also with a sign.
fn check(text: &str, number: i128, exponent: u32, format: Format) {
    let expect = number * 10_i128.pow(exponent);
    for (sign, factor) in [("", 1), ("+", 1), ("-", -1)] {
        let parsed = parse(&format!("{sign}{text}"));
        assert_eq!((parsed.nanos, parsed.format), (factor * expect, format), "{sign}{text}");
        let again = parse(&parsed.to_string());
        assert_eq!(again.nanos, parsed.nanos, "{sign}{text} as {parsed}");
    }
}

#[test]
fn every_suffix_is_read() {
    for (suffix, format) in [
        ("", DecimalSi),
        ("n", DecimalSi),
        ("u", DecimalSi),
        ("m", DecimalSi),
        ("k", DecimalSi),
        ("M", DecimalSi),
        ("G", DecimalSi),
        ("T", DecimalSi),
        ("Ki", BinarySi),
        ("Mi", BinarySi),
        ("Gi", BinarySi),
        ("Ti", BinarySi),
    ] {
        check(&format!("0{suffix}"), 0, 0, format);
    }
    for (text, number) in [
        ("1Ki", 1_i128 << 10),
        ("8Ki", 8 << 10),
        ("7Mi", 7 << 20),
        ("6Gi", 6 << 30),
        ("5Ti", 5 << 40),
        ("4Pi", 4 << 50),
        ("3Ei", 3 << 60),
        ("10Ti", 10 << 40),
        ("100Ti", 100 << 40),
    ] {
        check(text, number, 9, BinarySi);
    }
}

/// The exponent is that of billionths.
#[test]
fn every_exponent_is_read() {
    for (text, number, exponent) in [
        ("1", 1, 9),
        ("5n", 5, 0),
        ("4u", 4, 3),
        ("3m", 3, 6),
        ("9", 9, 9),
        ("8k", 8, 12),
        ("50k", 5, 13),
        ("7M", 7, 15),
        ("6G", 6, 18),
        ("5T", 5, 21),
        ("40T", 4, 22),
        ("300T", 3, 23),
        ("2P", 2, 24),
        ("1E", 1, 27),
        ("12E", 12, 27),
    ] {
        check(text, number, exponent, DecimalSi);
    }
    for (text, number, exponent) in [
        ("1E-3", 1, 6),
        ("1e3", 1, 12),
        ("1E6", 1, 15),
        ("1e9", 1, 18),
        ("1E12", 1, 21),
        ("1e15", 1, 24),
        ("1E18", 1, 27),
        ("1e14", 1, 23),
        ("1e13", 1, 22),
        ("0.5e0", 5, 8),
        ("0.5e-1", 5, 7),
        ("0.5e-2", 5, 6),
        ("1.2e3", 12, 11),
        ("1.3E+6", 13, 14),
        ("1.40e9", 14, 17),
        ("1.53E12", 153, 19),
        ("1.6e15", 16, 23),
        ("1.7E18", 17, 26),
        ("1.1E-9", 2, 0),
        ("0.5e-9", 1, 0),
    ] {
        check(text, number, exponent, DecimalExponent);
    }
}

#[test]
fn fractions_are_read_and_rounded_up() {
    for (text, number, exponent) in [
        ("100.035k", 100_035, 9),
        ("0.001", 1, 6),
        ("0.0005k", 5, 8),
        ("0.005", 5, 6),
        ("0.05", 5, 7),
        ("0.5", 5, 8),
        ("0.00050k", 5, 8),
        ("0.00500", 5, 6),
        ("0.05000", 5, 7),
        ("0.50000", 5, 8),
        ("10.035M", 10_035, 12),
        ("9.01", 901, 7),
        ("8.1k", 81, 11),
        ("7.123456M", 7_123_456, 9),
        ("6.987654321G", 6_987_654_321, 9),
        ("5.444T", 5444, 18),
        ("40.1T", 401, 20),
        ("300.2T", 3002, 20),
        ("2.5P", 25, 23),
        ("1.01E", 101, 25),
        ("3.001n", 4, 0),
        ("0.0000000001", 1, 0),
        ("0.0000000005", 1, 0),
        ("0.00000000050", 1, 0),
        ("0.9n", 1, 0),
        ("0.00000012345", 124, 0),
        ("0.00000012354", 124, 0),
        (".001", 1, 6),
        (".0001k", 1, 8),
        ("1.", 1, 9),
        ("1.G", 1, 18),
        // What is less than one is written with a decimal suffix.
        ("0.000000000001Ki", 2, 0),
    ] {
        check(text, number, exponent, DecimalSi);
    }
    for (text, number, exponent) in [
        ("100.035Ki", 10_243_584, 7),
        (".001Ki", 1024, 6),
        ("0.5Mi", 524_288, 9),
        ("0.05Gi", 536_870_912, 8),
        ("0.025Ti", 274_877_906_944, 8),
        // Binary suffixes have a bound.
        ("9Ei", i128::from(i64::MAX), 9),
        ("9223372036854775807Ki", i128::from(i64::MAX), 9),
    ] {
        check(text, number, exponent, BinarySi);
    }
}

#[test]
fn what_has_another_shape_is_refused() {
    let (format, suffix) = (ParseError::Format, ParseError::Suffix);
    for (text, expect) in [
        ("", format),
        ("1.1.M", format),
        ("1+1.0M", format),
        ("0.1mi", suffix),
        ("0.1am", format),
        ("aoeu", format),
        (".5i", suffix),
        ("1i", suffix),
        ("-3.01i", suffix),
        ("-3.01e-", suffix),
        (" 1", format),
        ("1 ", format),
        ("Non-Numeric", format),
        ("1e", suffix),
        ("--1", suffix),
        ("1-", suffix),
        ("1m1", suffix),
        ("1m5k", format),
        ("1e3e", format),
        ("1e-3-", format),
        ("1KI", format),
        ("1Kii", suffix),
        ("1e99999999999999999999", suffix),
    ] {
        assert_eq!(text.parse::<Quantity>(), Err(expect), "{text}");
    }
    // No digits are no error.
    for text in [".", "-.", "-", "+", "m", "Ki"] {
        assert!(parse(text).is_zero(), "{text}");
    }
}

#[test]
fn the_canonical_text_has_the_largest_suffix_without_a_fraction() {
    for (text, expect) in [
        ("1024Mi", "1Gi"),
        ("307200Ki", "300Mi"),
        ("6Ki", "6Ki"),
        ("1025024Mi", "1001Gi"),
        ("1024Gi", "1Ti"),
        ("1000M", "1G"),
        ("0.001T", "1G"),
        ("1000u", "1m"),
        ("80m", "80m"),
        ("1.08", "1080m"),
        ("1080000000n", "1080m"),
        ("300M", "300M"),
        ("1T", "1T"),
        ("1234567M", "1234567M"),
        ("3k", "3k"),
        ("1025", "1025"),
        ("0Ki", "0"),
        (".001e12", "1e9"),
        ("0.001e0", "1e-3"),
        ("1000e-12", "1e-9"),
        ("80e-3", "80e-3"),
        ("300e6", "300e6"),
        ("3e3", "3e3"),
        ("00", "0"),
        ("1e0", "1"),
        ("80n", "80n"),
        ("1080n", "1080n"),
        ("1u", "1u"),
        ("1080u", "1080u"),
        ("1Ki", "1Ki"),
        (".001Ki", "1024m"),
        (".000001Ki", "1024u"),
        (".000000001Ki", "1024n"),
        (".000000000001Ki", "2n"),
        ("12E", "12E"),
        ("0.5Ki", "512"),
        ("1.5Ki", "1536"),
        ("100.035Ki", "102435840m"),
    ] {
        assert_eq!(parse(text).to_string(), expect, "{text}");
        let negative = parse(&format!("-{text}"));
        assert_eq!(negative.to_string(), if expect == "0" { "0".to_owned() } else { format!("-{expect}") });
    }
}

#[test]
fn whole_numbers_are_rounded_away_from_zero() {
    for (text, units, milli) in [
        ("9.01", 10, 9010),
        ("-9.01", -10, -9010),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("0", 0, 0),
        ("1500m", 2, 1500),
        ("1.5Ki", 1536, 1_536_000),
        ("12E", i64::MAX, i64::MAX),
        ("-12E", i64::MIN, i64::MIN),
        ("9P", 9_000_000_000_000_000, 9_000_000_000_000_000_000),
    ] {
        assert_eq!((parse(text).value(), parse(text).milli_value()), (units, milli), "{text}");
    }
}

#[test]
fn sums_are_written_like_the_first_that_is_something() {
    for (one, other, sum, difference) in [
        ("10", "1", "11", "9"),
        ("10", "10", "20", "0"),
        ("0", "50", "50", "-50"),
        ("50", "0", "50", "50"),
        ("0", "100m", "100m", "-100m"),
        ("100m", "0", "100m", "100m"),
        ("0", "1Gi", "1Gi", "-1Gi"),
        ("1Gi", "0", "1Gi", "1Gi"),
        ("2Ki", "1000", "3048", "1048"),
        ("2000", "1Ki", "3024", "976"),
        ("2Ki", "1024", "3Ki", "1Ki"),
        ("2048", "1Ki", "3072", "1024"),
        ("1e3", "1k", "2e3", "0"),
        ("9Ei", "9Ei", "18446744073709551614", "0"),
        ("100E", "100E", "200E", "0"),
    ] {
        assert_eq!(parse(one).plus(parse(other)).to_string(), sum, "{one} + {other}");
        assert_eq!(parse(one).minus(parse(other)).to_string(), difference, "{one} - {other}");
    }
}

#[test]
fn amounts_compare_whatever_their_suffix() {
    use Ordering::{Equal, Greater, Less};
    for (one, other, expect) in [
        ("0", "0", Equal),
        ("100m", "50m", Greater),
        ("50m", "100m", Less),
        ("10000T", "100Gi", Greater),
        ("9.01", "9", Greater),
        ("800m", "1", Less),
        ("800m", "790m", Greater),
        ("0Ki", "0m", Equal),
        ("1e3", "1k", Equal),
        ("1Ki", "1k", Greater),
        ("12E", "9Ei", Greater),
        ("-1", "1n", Less),
        ("1000000000000000001n", "1G", Greater),
    ] {
        assert_eq!(parse(one).cmp(&parse(other)), expect, "{one} {other}");
        assert_eq!(parse(other).cmp(&parse(one)), expect.reverse(), "{other} {one}");
    }
}

#[test]
fn what_passes_for_canonical_is_written_as_it_was_read() {
    for text in [
        "0",
        "1",
        "1E3",
        "1e3",
        "+5",
        "-5",
        "1.G",
        "1.005",
        "1.500",
        "-1.500k",
        "001",
        "007k",
        "100m",
        "12Gi",
        "+1Ki",
        "1.Mi",
        "1001E",
        "1E-3",
        "999999999999999999",
    ] {
        assert_eq!(rewritten(text).as_deref(), Ok(text));
    }
    for (text, expect) in [
        ("1000", "1k"),
        ("+1000", "1k"),
        ("1.000", "1"),
        ("1.50", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("-0", "0"),
        ("00", "0"),
        ("0Gi", "0"),
        ("1e4", "10e3"),
        ("1024Ki", "1Mi"),
        ("08Gi", "8Gi"),
        ("1.5Gi", "1536Mi"),
        ("+3Ei", "3Ei"),
        ("+1000000000000000001", "1000000000000000001"),
        ("1.0000000001", "1000000001n"),
        ("2000E", "2000E"),
        ("1000000000000000000000000", "1000000E"),
    ] {
        assert_eq!(rewritten(text).as_deref(), Ok(expect), "{text}");
    }
    assert_eq!(rewritten("x"), Err(ParseError::Format));
}

/// Source: `TestQuantityRoundUp`.
#[test]
fn thousandths_are_rounded_away_from_zero() {
    for (text, expect) in [
        ("9.01", "9010m"),
        ("-9.01", "-9010m"),
        ("1u", "1m"),
        ("-1u", "-1m"),
        ("1500u", "2m"),
        ("-1001u", "-2m"),
        ("3001n", "1m"),
        ("1000u", "1m"),
        ("0", "0"),
        ("1Ki", "1Ki"),
        (".001Ki", "1024m"),
        ("1.0000001Gi", "1073741931375m"),
        ("1e-6", "1e-3"),
    ] {
        assert_eq!(parse(text).rounded_to_milli().to_string(), expect, "{text}");
    }
}
