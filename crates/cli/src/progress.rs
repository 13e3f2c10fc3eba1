//! One line per step on stderr, with what it took.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// A printer of steps as they end.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    last: Instant,
    is_terminal: bool,
    has_colours: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// Starts the clock.
    pub fn new() -> Self {
        let now = Instant::now();
        let variable = |name: &str| std::env::var(name).ok();
        let has_colours = crate::screen::has_colours(stderr().is_terminal(), &variable);
        Self { start: now, last: now, is_terminal: stderr().is_terminal(), has_colours }
    }

    /// A step has ended well.
    pub fn done(&mut self, what: &str) {
        let took = self.last.elapsed();
        self.last = Instant::now();
        self.line(&line(self.mark(Mark::Done), what, Some(took)));
    }

    /// A step has ended badly.
    pub fn failed(&mut self, what: &str) {
        self.last = Instant::now();
        self.line(&line(self.mark(Mark::Failed), what, None));
    }

    /// A headline.
    pub fn section(&mut self, title: &str) {
        self.last = Instant::now();
        self.line(&format!("\n{title}"));
    }

    /// A line beside the steps.
    pub fn note(&self, text: &str) {
        self.line(text);
    }

    /// Since the first step began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// A step has ended well, so long after the start.
    pub fn reached(&mut self, what: &str) {
        self.last = Instant::now();
        self.line(&line(self.mark(Mark::Done), what, Some(self.start.elapsed())));
    }

    fn mark(&self, mark: Mark) -> &'static str {
        match (self.is_terminal, self.has_colours, mark) {
            (true, true, Mark::Done) => "\u{1b}[32m✓\u{1b}[0m",
            (true, true, Mark::Failed) => "\u{1b}[31m✗\u{1b}[0m",
            (true, false, Mark::Done) => "✓",
            (true, false, Mark::Failed) => "✗",
            (false, _, Mark::Done) => "ok  ",
            (false, _, Mark::Failed) => "FAIL",
        }
    }

    fn line(&self, text: &str) {
        if writeln!(stderr(), "{text}").is_err() {
            // Nobody listens any more; the work goes on.
        }
    }
}

#[derive(Clone, Copy)]
enum Mark {
    Done,
    Failed,
}

fn line(mark: &str, what: &str, took: Option<Duration>) -> String {
    match took {
        Some(took) => format!("  {mark} {what:<58} {:>9}", duration(took)),
        None => format!("  {mark} {what}"),
    }
}

/// `0.4 ms`, `12 ms`, `1.24 s`.
pub fn duration(took: Duration) -> String {
    let ms = took.as_secs_f64() * 1e3;
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.2} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_people_read() {
        let cases = [(400, "0.4 ms"), (12_000, "12 ms"), (1_240_000, "1.24 s")];
        for (micros, expected) in cases {
            assert_eq!(duration(Duration::from_micros(micros)), expected);
        }
    }
}
