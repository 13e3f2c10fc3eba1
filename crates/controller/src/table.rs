//! Tables in files: rows `INPUT | OUTCOME`, compared as wholes.
//!
//! Lines that begin with `#` and empty ones are left as they are. `UPDATE_EXPECT=1` writes the outcomes anew, to be read in
//! review.

use std::fmt::Write;

use expect_test::ExpectFile;

/// Compares a table with what `outcome` says of its inputs.
pub(crate) fn check(table: &ExpectFile, outcome: impl Fn(&str) -> String) {
    let (mut rendered, mut rows) = (String::new(), 0);
    for line in table.data().lines() {
        match line.split_once(" | ") {
            Some((input, _)) if !line.starts_with('#') => {
                rows += 1;
                writeln!(rendered, "{input} | {}", outcome(input)).expect("a text");
            }
            _ => writeln!(rendered, "{line}").expect("a text"),
        }
    }
    assert!(rows > 10, "{rows} rows");
    table.assert_eq(&rendered);
}
