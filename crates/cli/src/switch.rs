//! Switches in texts, as Go's flags read them.

/// `true`, `false`, and the other words for them. Source: Go's `strconv.ParseBool`.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::switch;

    /// Source: `strconv/atob_test.go` of Go.
    #[test]
    fn words_for_true_and_false_are_gos() {
        for yes in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(switch(yes), Some(true), "{yes}");
        }
        for no in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(switch(no), Some(false), "{no}");
        }
        for neither in ["", "asdf", "tRUE", "yes", "on", "2", " true", "-1"] {
            assert_eq!(switch(neither), None, "{neither:?}");
        }
    }
}
