use super::*;

#[test]
fn checks_are_of_a_process_and_answer_by_name() {
    let (metrics, other) = (Metrics::new(), Metrics::new());
    Checks::of(&metrics).add("b", || Err("late".into()));
    Checks::of(&metrics).add("a", || Err("replaced".into()));
    Checks::of(&metrics).add("a", || Ok(()));
    let all = Checks::of(&metrics).all();
    let told = |found: Result<(), Fault>| found.map_err(|fault| fault.to_string());
    let all: Vec<_> = all.into_iter().map(|(name, found)| (name, told(found))).collect();
    assert_eq!(all, [("a".to_owned(), Ok(())), ("b".to_owned(), Err("late".to_owned()))]);
    assert!(Checks::of(&other).all().is_empty());
}

#[test]
fn results_are_kept_and_counted() {
    let results = Results::of(&Metrics::new());
    for is_well in [true, true, false] {
        results.note("readyz", "log", is_well);
    }
    results.note("livez", "ping", true);
    let text = results.render();
    for line in [
        r#"kubernetes_healthcheck{name="log",type="readyz"} 0"#,
        r#"kubernetes_healthcheck{name="ping",type="livez"} 1"#,
        r#"kubernetes_healthchecks_total{name="log",status="success",type="readyz"} 2"#,
        r#"kubernetes_healthchecks_total{name="log",status="error",type="readyz"} 1"#,
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
}

#[test]
fn a_path_tells_of_what_it_is_asked_for() {
    let checks = || [("ping".to_owned(), Ok(())), ("log".to_owned(), Err("full".into()))];
    let told =
        |name: &str, is_verbose| report("livez", checks(), |one| name.is_empty() || one == name, is_verbose);
    assert_eq!(told("ping", false), Some((true, "ok".to_owned())));
    assert_eq!(told("ping", true), Some((true, "[+]ping ok\nlivez check passed\n".to_owned())));
    let all = "[+]ping ok\n[-]log failed: full\nlivez check failed\n";
    assert_eq!(told("", false), Some((false, all.to_owned())));
    assert_eq!(told("pong", false), None);
}

/// Source: `TestInstallPathHandler` and `TestMulitipleChecks` of upstream's `apiserver/pkg/server/healthz`.
#[test]
fn an_answer_is_short_unless_something_fails_or_all_is_asked_for() {
    for (name, checks, is_verbose, expect) in [
        ("one well", "ping", false, Some((true, "ok"))),
        ("one well, in full", "ping", true, Some((true, "[+]ping ok\nhealthz check passed\n"))),
        (
            "two well, in full",
            "ping log",
            true,
            Some((true, "[+]ping ok\n[+]log ok\nhealthz check passed\n")),
        ),
        ("one ill", "-bad", false, Some((false, "[-]bad failed: it does not work\nhealthz check failed\n"))),
        (
            "one of three ill",
            "ping -bad log",
            false,
            Some((false, "[+]ping ok\n[-]bad failed: it does not work\n[+]log ok\nhealthz check failed\n")),
        ),
        (
            "two of two ill",
            "-bad -worse",
            true,
            Some((
                false,
                "[-]bad failed: it does not work\n[-]worse failed: it does not work\nhealthz check failed\n",
            )),
        ),
        ("none", "", true, None),
    ] {
        let checks =
            checks.split(' ').filter(|name| !name.is_empty()).map(|name| match name.strip_prefix('-') {
                Some(name) => (name.to_owned(), Err("it does not work".into())),
                None => (name.to_owned(), Ok(())),
            });
        let told = report("healthz", checks, |_| true, is_verbose);
        assert_eq!(told.as_ref().map(|(is_well, text)| (*is_well, text.as_str())), expect, "{name}");
    }
}
