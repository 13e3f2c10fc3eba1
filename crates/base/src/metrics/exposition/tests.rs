//! What the two formats have in common, and where they differ.

use super::*;

fn check(name: &str, open_metrics: &str, expect: &str) {
    let plain = BTreeSet::from(["evictions".to_owned(), "seen_total_bytes".to_owned()]);
    assert_eq!(plain_text(open_metrics, &plain), expect, "{name}");
}

#[test]
fn each_line_is_what_older_readers_expect() {
    check("nothing", "# EOF\n", "");
    check(
        "a counter's family has its samples' name",
        "# HELP adds Adds.\n# TYPE adds counter\nadds_total{queue=\"a\"} 3\n# EOF\n",
        "# HELP adds_total Adds.\n# TYPE adds_total counter\nadds_total{queue=\"a\"} 3\n",
    );
    check(
        "a counter without a suffix",
        "# HELP evictions E.\n# TYPE evictions counter\nevictions_total{a=\"b\"} 3\nevictions_total 4\n",
        "# HELP evictions E.\n# TYPE evictions counter\nevictions{a=\"b\"} 3\nevictions 4\n",
    );
    check(
        "only its own samples lose the suffix",
        "# HELP evictions E.\n# TYPE evictions counter\nevictions_total 3\n# HELP other O.\n# TYPE other counter\nother_total 4\n",
        "# HELP evictions E.\n# TYPE evictions counter\nevictions 3\n# HELP other_total O.\n# TYPE other_total counter\nother_total 4\n",
    );
    check(
        "a suffix in the middle stays",
        "# HELP seen_total_bytes B.\n# TYPE seen_total_bytes counter\nseen_total_bytes_total 3\n",
        "# HELP seen_total_bytes B.\n# TYPE seen_total_bytes counter\nseen_total_bytes 3\n",
    );
    check(
        "a family without help",
        "# TYPE depth gauge\ndepth 3\n",
        "# HELP depth \n# TYPE depth gauge\ndepth 3\n",
    );
    check(
        "units and other comments go",
        "# HELP a A.\n# TYPE a gauge\n# UNIT a seconds\na 3\n# EOF\n",
        "# HELP a A.\n# TYPE a gauge\na 3\n",
    );
}

#[test]
fn numbers_are_written_as_go_writes_them() {
    for (sample, expect) in [
        ("a 3.0", "a 3"),
        ("a 0.0", "a 0"),
        ("a -3.0", "a -3"),
        ("a 3.5", "a 3.5"),
        ("a 30", "a 30"),
        ("a 10.01", "a 10.01"),
        ("a inf", "a +Inf"),
        ("a{b=\"c\"} inf", "a{b=\"c\"} +Inf"),
        ("a{b=\"1.0\"} 2.0", "a{b=\"1.0\"} 2"),
        ("a{b=\" inf\"} 2.0", "a{b=\" inf\"} 2"),
        ("a_bucket{le=\"1.0\"} 5", "a_bucket{le=\"1\"} 5"),
        ("a_bucket{le=\"0.005\"} 5", "a_bucket{le=\"0.005\"} 5"),
        ("a_bucket{le=\"10.0\",b=\"2.0\"} 5", "a_bucket{le=\"10\",b=\"2.0\"} 5"),
        ("a_bucket{le=\"0.5\",b=\"2.0\"} 5", "a_bucket{le=\"0.5\",b=\"2.0\"} 5"),
        ("a_bucket{le=\"+Inf\",b=\"c\"} 5", "a_bucket{le=\"+Inf\",b=\"c\"} 5"),
        ("a_sum{b=\"c\"} 2.0", "a_sum{b=\"c\"} 2"),
    ] {
        assert_eq!(whole(sample), expect, "{sample}");
    }
}
