//! What Go's `encoding/base64` and upstream's quantities take.

use super::*;

/// Source: `TestDecodeCorrupt` and `TestNewLineCharacters` of Go's `base64_test.go`.
#[test]
fn what_is_no_base64_is_told_from_the_byte_at_which_go_stops() {
    for (text, offset) in [
        ("!!!!", 0),
        ("====", 0),
        ("x===", 1),
        ("=AAA", 0),
        ("A=AA", 1),
        ("AA=A", 2),
        ("AA==A", 4),
        ("AAA=AAAA", 4),
        ("AAAAA", 4),
        ("AAAAAA", 4),
        ("A=", 1),
        ("A==", 1),
        ("AA=", 3),
        ("AA==", usize::MAX),
        ("AAA=", usize::MAX),
        ("AAAA", usize::MAX),
        ("AAAAA=", 5),
        ("AAAAAA=", 7),
        ("YWJjZA=====", 8),
        ("A!\n", 1),
        ("A=\n", 1),
        ("aG!k", 2),
        ("aG\nVs\n!", 6),
        ("aGk", 0),
        ("aGVsbG8", 4),
        ("aGVs bG8=", 4),
        ("a-_k", 1),
        ("é", 0),
        ("\n", usize::MAX),
        ("", usize::MAX),
    ] {
        let found = from_base64(text).map_or_else(|CorruptBase64(offset)| offset, |_| usize::MAX);
        assert_eq!(found, offset, "{text:?}");
    }
}

#[test]
fn base64_is_written_as_go_would_after_reading_it() {
    for (text, expect) in [
        ("c3VyZQ==", "c3VyZQ=="),
        ("c3VyZQ==\r", "c3VyZQ=="),
        ("c3VyZQ==\n\r\n", "c3VyZQ=="),
        ("c3VyZ\r\nQ==", "c3VyZQ=="),
        ("c3V\nyZ\rQ==", "c3VyZQ=="),
        ("c3VyZQ\n==", "c3VyZQ=="),
        ("c3VyZQ=\r\n=", "c3VyZQ=="),
        // Bits that no byte has.
        ("c3VyZR==", "c3VyZQ=="),
        ("YWK=", "YWI="),
    ] {
        assert_eq!(canonical_base64(text).as_deref(), Ok(expect), "{text:?}");
    }
}

/// Source: `parseQuantityString` and `TestQuantityParseFail`.
#[test]
fn quantities_have_upstreams_shape() {
    const SUFFIX: &str = "unable to parse quantity's suffix";
    for text in [
        "0", "1", "-1", "+1.5Gi", "1.", "1.G", ".5", ".", "-", "+", "m", "Ki", "-.", "1E", "1E3", "1e-3",
        "1e+3", "00",
    ] {
        assert_eq!(check_quantity(text), Ok(()), "{text}");
    }
    for (text, why) in [
        ("", QUANTITY_PATTERN),
        (" 1", QUANTITY_PATTERN),
        ("1 ", QUANTITY_PATTERN),
        ("1.1.M", QUANTITY_PATTERN),
        ("1+1.0M", QUANTITY_PATTERN),
        ("0.1am", QUANTITY_PATTERN),
        ("aoeu", QUANTITY_PATTERN),
        ("--1", SUFFIX),
        ("1m5k", QUANTITY_PATTERN),
        ("1e3e", QUANTITY_PATTERN),
        ("1e-3-", QUANTITY_PATTERN),
        ("10GB", QUANTITY_PATTERN),
        ("1١", QUANTITY_PATTERN),
        ("0.1mi", SUFFIX),
        (".5i", SUFFIX),
        ("1i", SUFFIX),
        ("1e", SUFFIX),
        ("-3.01e-", SUFFIX),
        ("1-", SUFFIX),
        ("1m1", SUFFIX),
        ("1KI", QUANTITY_PATTERN),
        ("1Kii", SUFFIX),
        ("1e99999999999999999999", SUFFIX),
    ] {
        assert_eq!(check_quantity(text), Err(why), "{text}");
    }
}
