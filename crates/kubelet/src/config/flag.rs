//! Switches as text.

/// On or off, as Go's `strconv.ParseBool` reads it; `None` if it is neither.
pub(crate) fn flag(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_as_go_reads_them() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(flag(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(flag(text), Some(false), "{text}");
        }
        for text in ["", " true", "tRUE", "yes", "on", "2", "enabled!", "true\n"] {
            assert_eq!(flag(text), None, "{text}");
        }
    }
}
