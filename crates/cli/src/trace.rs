//! What `knarr trace` and the demo print: the chain of events, a line per step.
//!
//! A step is a commit (a write to the API, with the revision that caused it) or a span (something that made no
//! revision, such as a sandbox that was started). Times are since the first commit.

use std::collections::HashSet;

use machinery::trace::{Chain, Commit, Span};

/// Turns chains into lines; each step is printed once.
#[derive(Debug, Default)]
pub struct Printer {
    zero_us: Option<i64>,
    printed: HashSet<(u64, String, i64)>,
}

struct Step {
    start_us: i64,
    took_us: i64,
    component: String,
    text: String,
    id: (u64, String, i64),
}

impl Printer {
    /// Lines for the steps that were not there before, in order of time.
    pub fn lines(&mut self, chain: &Chain) -> Vec<String> {
        let mut steps: Vec<Step> =
            chain.commits.iter().filter(|commit| !is_event(commit)).map(step_of_commit).collect();
        steps.extend(chain.spans.iter().map(step_of_span));
        steps.retain(|step| !self.printed.contains(&step.id));
        steps.sort_by_key(|step| step.start_us);
        if let Some(first) = steps.first() {
            self.zero_us.get_or_insert(first.start_us);
        }
        let zero = self.zero_us.unwrap_or(0);
        let lines = steps.iter().map(|step| line(step, zero)).collect();
        self.printed.extend(steps.into_iter().map(|step| step.id));
        lines
    }
}

fn is_event(commit: &Commit) -> bool {
    commit.key.starts_with("events/")
}

fn step_of_commit(commit: &Commit) -> Step {
    let verb = if commit.is_deletion { "delete" } else { commit.verb.as_str() };
    let subresource =
        if commit.subresource.is_empty() { String::new() } else { format!("/{}", commit.subresource) };
    Step {
        start_us: commit.at_us,
        took_us: commit.committed_us - commit.at_us,
        component: component(commit),
        text: format!("{verb} {}{subresource}  (revision {})", commit.key, commit.revision),
        id: (commit.revision, String::new(), 0),
    }
}

/// In-process controllers share a user agent; their user tells them apart.
fn component(commit: &Commit) -> String {
    let user = commit.user.strip_prefix("system:").unwrap_or(&commit.user);
    let name = if commit.component.is_empty() { user } else { &commit.component };
    name.to_owned()
}

fn step_of_span(span: &Span) -> Step {
    let parts = [span.name.as_str(), span.object.as_str(), span.detail.as_str()];
    let text: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Step {
        start_us: span.start_us,
        took_us: span.end_us - span.start_us,
        component: span.component.clone(),
        text: text.join("  "),
        id: (span.cause, format!("{} {} {}", span.component, span.name, span.object), span.start_us),
    }
}

fn line(step: &Step, zero_us: i64) -> String {
    let after = milliseconds(step.start_us - zero_us);
    let took = milliseconds(step.took_us);
    format!("  +{after:>8} ms  {took:>7} ms  {:<24} {}", step.component, step.text)
}

fn milliseconds(us: i64) -> String {
    format!("{}.{}", us / 1000, (us % 1000).abs() / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn steps_are_printed_once_in_order_of_time() {
        let create = Commit {
            revision: 7,
            key: "deployments/default/web".into(),
            verb: "create".into(),
            component: "kubectl".into(),
            at_us: 1_000_000,
            committed_us: 1_001_200,
            ..Commit::default()
        };
        let span = Span {
            cause: 9,
            component: "scheduler".into(),
            name: "decide".into(),
            object: "pods/default/web-1".into(),
            start_us: 1_004_500,
            end_us: 1_004_600,
            ..Span::default()
        };
        let bind = Commit {
            revision: 10,
            parent: 9,
            key: "pods/default/web-1".into(),
            verb: "create".into(),
            subresource: "binding".into(),
            component: "scheduler".into(),
            at_us: 1_004_700,
            committed_us: 1_005_000,
            ..Commit::default()
        };
        let mut printer = Printer::default();
        let mut lines =
            printer.lines(&Chain { commits: vec![create.clone(), bind.clone()], spans: vec![span.clone()] });
        lines.extend(printer.lines(&Chain { commits: vec![create, bind], spans: vec![span] }));
        expect![[r#"
              +     0.0 ms      1.2 ms  kubectl                  create deployments/default/web  (revision 7)
              +     4.5 ms      0.1 ms  scheduler                decide  pods/default/web-1
              +     4.7 ms      0.3 ms  scheduler                create pods/default/web-1/binding  (revision 10)"#]]
        .assert_eq(&lines.iter().map(|line| line.trim_start()).collect::<Vec<_>>().join("\n"));
    }
}
