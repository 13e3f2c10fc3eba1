//! The indexes that are enough for a Job to have succeeded. Source: `JobSpec.successPolicy`, batch/v1.

use k8s_openapi::api::batch::v1::{SuccessPolicy, SuccessPolicyRule};

use super::indexes::Indexes;

/// What is said of the first rule that the succeeded indexes meet.
pub(super) fn met(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let rule = policy?.rules.iter().position(|rule| is_met(rule, completions, succeeded))?;
    Some(format!("Matched rules at index {rule}"))
}

fn is_met(rule: &SuccessPolicyRule, completions: i32, succeeded: &Indexes) -> bool {
    let has_count = |count: i32| rule.succeeded_count.is_some_and(|wanted| count >= wanted);
    let Some(text) = &rule.succeeded_indexes else { return has_count(succeeded.total()) };
    let wanted = Indexes::parse(text, completions);
    let reached = wanted.overlap(succeeded);
    !wanted.is_empty() && (reached == wanted.total() || has_count(reached))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    fn check(rules: &str, succeeded: &str, expect: Option<usize>) {
        let policy: SuccessPolicy = parse(&format!("{{rules: [{rules}]}}"));
        let said = met(Some(&policy), 10, &Indexes::parse(succeeded, 10));
        let expect = expect.map(|rule| format!("Matched rules at index {rule}"));
        assert_eq!(said, expect, "{rules} with {succeeded}");
    }

    #[test]
    fn enough_of_the_named_indexes_or_of_all_must_have_succeeded() {
        for (rules, succeeded, expect) in [
            ("", "0-9", None),
            ("{succeededCount: 2}", "", None),
            ("{succeededCount: 2}", "3", None),
            ("{succeededCount: 2}", "3,7", Some(0)),
            ("{succeededIndexes: '0,2-3'}", "0,2", None),
            ("{succeededIndexes: '0,2-3'}", "0-3", Some(0)),
            ("{succeededIndexes: '0,2-3', succeededCount: 1}", "1,4-9", None),
            ("{succeededIndexes: '0,2-3', succeededCount: 1}", "2", Some(0)),
            ("{succeededIndexes: '0', succeededCount: 1}, {succeededCount: 2}", "5-6", Some(1)),
            ("{succeededIndexes: 'x'}, {succeededIndexes: '20'}", "0-9", None),
            ("{}", "0-9", None),
        ] {
            check(rules, succeeded, expect);
        }
        assert_eq!(met(None, 10, &Indexes::parse("0-9", 10)), None);
    }
}
