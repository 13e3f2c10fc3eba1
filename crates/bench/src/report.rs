//! What was measured, as a table for people and as JSON. Percentiles are by nearest rank.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

/// How the report is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    /// A table.
    Text,
    /// One JSON object: `-o json`.
    Json,
}

/// The machine that was measured, and how busy others kept it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    build: &'static str,
    cores: usize,
    processor: String,
    kernel: String,
    memory_mebibytes: u64,
    load_average_before: String,
}

impl Machine {
    pub(crate) fn look() -> Result<Self> {
        let processors = std::fs::read_to_string("/proc/cpuinfo")?;
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let total = field(&memory, "MemTotal").and_then(|text| text.split_whitespace().next());
        Ok(Self {
            // Both programs come from one build.
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            cores: std::thread::available_parallelism()?.get(),
            processor: field(&processors, "model name").unwrap_or("unknown").to_owned(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            memory_mebibytes: total.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default() >> 10,
            load_average_before: load_average()?,
        })
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn load_average() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    samples: usize,
    median: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<&'static str>,
}

/// What a row should reach, in the row's unit.
type Goal = Option<&'static str>;

/// All lines, in the order of the measuring.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    machine: Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_average_after: Option<String>,
    rows: Vec<Row>,
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, load_average_after: None, rows: Vec::new(), failures: Vec::new() }
    }

    /// A row of durations, in milliseconds.
    pub(crate) fn durations(&mut self, what: &str, goal: Goal, took: &[Duration]) {
        let milliseconds: Vec<f64> = took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        self.samples(what, "ms", goal, &milliseconds);
    }

    /// A row of several samples, and their median; none without samples.
    pub(crate) fn samples(
        &mut self,
        what: &str,
        unit: &'static str,
        goal: Goal,
        samples: &[f64],
    ) -> Option<f64> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (median, p99) = percentile(&sorted, 50).zip(percentile(&sorted, 99))?;
        let (what, samples) = (what.to_owned(), sorted.len());
        self.rows.push(Row { what, unit, samples, median, p99: Some(p99), goal });
        Some(median)
    }

    /// A row of one value over the whole measurement.
    pub(crate) fn value(&mut self, what: &str, unit: &'static str, goal: Goal, value: f64) {
        self.rows.push(Row { what: what.to_owned(), unit, samples: 1, median: value, p99: None, goal });
    }

    /// Keeps the failure, if it is one.
    pub(crate) fn note(&mut self, what: &str, result: Result<()>) {
        if let Err(error) = result {
            eprintln!("bench: {what}: {error:#}");
            self.failures.push(format!("{what}: {error:#}"));
        }
    }

    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The report as text.
    pub(crate) fn render(&mut self, format: Format) -> Result<String> {
        self.load_average_after = Some(load_average()?);
        match format {
            Format::Json => Ok(format!("{}\n", serde_json::to_string_pretty(self)?)),
            Format::Text => self.table(),
        }
    }

    fn table(&self) -> Result<String> {
        let mut text = String::new();
        let machine = &self.machine;
        writeln!(
            text,
            "{} cores ({}), {} MiB, Linux {}; {} build; load average before {}, after {}",
            machine.cores,
            machine.processor,
            machine.memory_mebibytes,
            machine.kernel,
            machine.build,
            machine.load_average_before,
            self.load_average_after.as_deref().unwrap_or("unknown"),
        )?;
        let width = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or_default();
        writeln!(
            text,
            "{:width$}  {:>7}  {:>10}  {:>10}  {:>6}  unit",
            "what", "samples", "median", "p99", "goal"
        )?;
        for row in &self.rows {
            let (median, p99) = (number(row.median), row.p99.map(number).unwrap_or_default());
            let (what, samples, unit) = (&row.what, row.samples, row.unit);
            let goal = row.goal.unwrap_or_default();
            writeln!(text, "{what:width$}  {samples:>7}  {median:>10}  {p99:>10}  {goal:>6}  {unit}")?;
        }
        for failure in &self.failures {
            writeln!(text, "failed: {failure}")?;
        }
        Ok(text)
    }
}

/// Three or more significant digits.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// The smallest sample that `percent` of all do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50), Some(50.0));
        assert_eq!(percentile(&hundred, 99), Some(99.0));
        assert_eq!(percentile(&[3.0, 5.0, 9.0], 50), Some(5.0));
        assert_eq!(percentile(&[3.0, 5.0, 9.0], 99), Some(9.0));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_field_is_read_by_its_whole_name() {
        assert_eq!(field("MemTotalX: 1\nMemTotal:  8 kB\n", "MemTotal"), Some("8 kB"));
        assert_eq!(field("MemFree: 1\n", "MemTotal"), None);
    }
}
