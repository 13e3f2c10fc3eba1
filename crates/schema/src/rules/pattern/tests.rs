use super::*;

#[test]
fn expressions_match_what_they_match_in_go() {
    // Pattern, texts in which it is found, texts in which it is not.
    let cases: &[(&str, &[&str], &[&str])] = &[
        (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", &["a", "a-b"], &["-a", "A", ""]),
        (r"^\d+$", &["12"], &["٣", "a"]),
        (r"^\w$", &["a", "_"], &["é"]),
        (r"^\s$", &[" ", "\t"], &["\u{a0}", "\u{b}"]),
        (r"^[\d\s]+$", &["1 2"], &["٣"]),
        (r"^[\D]$", &["a"], &["1"]),
        (r"\bé", &["aé"], &["é"]),
        (r"a\Bé", &[], &["aé"]),
        (r"^\Qa.b[\E$", &["a.b["], &["axb["]),
        (r"^\Qa.b", &["a.b"], &["axb"]),
        (r"^a{,2}$", &["a{,2}"], &["aa"]),
        (r"^{$", &["{"], &[""]),
        (r"^a{2}}$", &["aa}"], &["aa"]),
        (r"^x{01}$", &["x{01}"], &["x"]),
        (r"^[[]$", &["["], &["a"]),
        (r"^[a&&b]+$", &["a&b"], &["c"]),
        (r"^[+--z~~]+$", &["+,-z~"], &["a"]),
        (r"^[]a]$", &["]", "a"], &["b"]),
        (r"^[^]a]$", &["b", "\n"], &["]", "a"]),
        (r"^[a-]$", &["a", "-"], &["b"]),
        (r"^[[:alpha:]]$", &["a"], &["1", "é"]),
        (r"^[[:^alpha:]]$", &["1"], &["a"]),
        (r"^\p{Greek}\pL\P{L}\p{^Greek}$", &["αa1a"], &["aa1a"]),
        (r"^\x41\x{42}\103\0$", &["ABC\0"], &["abc"]),
        (r"^\<\_\-\/\>$", &["<_-/>"], &["a"]),
        (r"(?i)^straße$", &["STRAßE"], &["strasse"]),
        (r"^(?P<a>x)(?<b>y)(?:z)$", &["xyz"], &["xy"]),
        (r"^(?s:.)(?U:a+)$", &["\na"], &["a"]),
        (r"^(?m:^a$)", &["a\nb"], &["b"]),
        (r"a|^$", &["", "ba"], &["b"]),
        (r"#x y", &["a#x y"], &["#xy"]),
        (r"^(a|a)*b", &["aaaab"], &["aaaa"]),
        (r"^a??b*?$", &["ab", ""], &["c"]),
    ];
    for (pattern, found, missed) in cases {
        let compiled = Pattern::new(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"));
        for text in *found {
            assert!(compiled.is_match(text), "{pattern} is not found in {text:?}");
        }
        for text in *missed {
            assert!(!compiled.is_match(text), "{pattern} is found in {text:?}");
        }
    }
}

#[test]
fn what_go_refuses_is_refused_in_its_words() {
    let cases = [
        ("a**", "invalid nested repetition operator: `**`"),
        ("a+{2}", "invalid nested repetition operator: `+{2}`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|{2}", "missing argument to repetition operator: `{2}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("a{99999999999}", "invalid repeat count: `{99999999999}`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[", "missing closing ]: `[`"),
        ("[]", "missing closing ]: `[]`"),
        ("[a-", "missing closing ]: `[a-`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[a--z]", "invalid character class range: `a--`"),
        ("[a-\\d]", "invalid character class range: `a-\\d`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("(a)\\1", "invalid escape sequence: `\\1`"),
        ("\\y", "invalid escape sequence: `\\y`"),
        ("\\xZ1", "invalid escape sequence: `\\x`"),
        ("\\x{110000}", "invalid escape sequence: `\\x`"),
        ("\\p{Klingon}", "invalid character class range: `\\p{Klingon}`"),
        ("\\p{gc=L}", "invalid character class range: `\\p{gc=L}`"),
        ("\\p", "invalid character class range: `\\p`"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("(?P<a>x)(?P<a>y)", "duplicate capture group name: `a`"),
    ];
    for (pattern, why) in cases {
        let refused = Pattern::new(pattern).map(|pattern| pattern.translated).map_err(|why| why.to_string());
        assert_eq!(refused, Err(format!("error parsing regexp: {why}")), "{pattern}");
    }
}

#[test]
fn no_expression_takes_much_memory_or_time() {
    let huge = "(?:a{1000}){1000}";
    assert!(Pattern::new(huge).is_err_and(|why| why == PatternError::TooLarge));
    assert!(Pattern::new(&"(".repeat(5000)).is_err());
    let deep = format!("{}a{}", "(".repeat(5000), ")".repeat(5000));
    assert!(Pattern::new(&deep).is_err());
    let started = std::time::Instant::now();
    let catastrophe = Pattern::new("^(a+)+$").expect("an expression");
    assert!(!catastrophe.is_match(&format!("{}b", "a".repeat(20_000))));
    assert!(started.elapsed().as_secs() < 10, "it was tried again and again");
}

#[test]
fn all_that_is_found_is_told_in_bytes() {
    let pattern = Pattern::new(r"\d+").expect("an expression");
    let found: Vec<_> = pattern.find_iter("a1 ü22 ٣").collect();
    assert_eq!(found, [1..2, 5..7]);
    assert_eq!(Pattern::new("x*").expect("an expression").find_iter("ab").count(), 3);
}
