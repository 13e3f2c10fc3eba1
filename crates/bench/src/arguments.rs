//! What is asked for on the command line.

use anyhow::{Context, Result, bail};

use crate::extent::Extent;
use crate::report::Format;
use crate::rows::Row;

/// The command line.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) format: Format,
    pub(crate) extent: Extent,
    only: Vec<String>,
}

impl Arguments {
    /// Reads the command line; names must be those of `rows`.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>, rows: &[Row]) -> Result<Self> {
        let mut arguments = Self { format: Format::Text, extent: Extent::Full, only: Vec::new() };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => arguments.extent = Extent::Quick,
                "-ojson" | "-o=json" => arguments.format = Format::Json,
                "-o" if words.next().as_deref() == Some("json") => arguments.format = Format::Json,
                "--only" => {
                    let name = words.next().context("--only needs a name")?;
                    if !rows.iter().any(|row| row.name == name) {
                        bail!("there is no measurement {name}\n{}", usage(rows));
                    }
                    arguments.only.push(name);
                }
                _ => bail!("{}", usage(rows)),
            }
        }
        Ok(arguments)
    }

    /// Whether the measurement `name` is to be made.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn usage(rows: &[Row]) -> String {
    let names: Vec<String> = rows.iter().map(|row| format!("  {:18}{}", row.name, row.about)).collect();
    format!("usage: cargo xtask bench [--quick] [--only NAME]... [-o json]\n\nnames:\n{}", names.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    fn parse(text: &str) -> Result<Arguments> {
        Arguments::parse(text.split_whitespace().map(str::to_owned), ROWS)
    }

    #[test]
    fn without_names_everything_is_measured() {
        let all = parse("--quick").expect("valid");
        assert!(all.wants("creates") && all.wants("idle") && all.extent == Extent::Quick);
        let some = parse("--only creates --only get -o json").expect("valid");
        assert!(some.wants("creates") && some.wants("get") && !some.wants("idle"));
    }

    #[test]
    fn unknown_words_and_names_are_refused() {
        assert!(parse("--fast").is_err());
        assert!(parse("--only nothing").is_err());
        assert!(parse("-o yaml").is_err());
    }
}
