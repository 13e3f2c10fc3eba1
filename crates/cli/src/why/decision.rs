//! What the scheduler found out when it last decided about a Pod, from its own record: the last of its spans.

use machinery::trace::Chain;

/// What a Pod does of whose gang there are not enough.
const WAIT: &str = "wait";
const NAMES: [&str; 2] = ["decide", WAIT];

/// The scheduler's last decision about the subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Its age in seconds.
    pub seconds_ago: u64,
    /// The plugins that refused Nodes, or what they gave to the best; or what the Pod waits for.
    pub text: String,
    /// `true` if nothing was decided, since the Pod waits for others first.
    pub waits: bool,
}

impl Decision {
    /// The last one about a Pod; `now_us` is the time in Unix microseconds.
    #[must_use]
    pub fn last(chain: &Chain, namespace: &str, name: &str, now_us: i64) -> Option<Self> {
        let object = format!("pods/{namespace}/{name}");
        let mut spans = chain.spans.iter().rev();
        let span = spans.find(|span| {
            span.component == "scheduler" && NAMES.contains(&span.name.as_str()) && span.object == object
        })?;
        let ago = now_us.saturating_sub(span.end_us) / 1_000_000;
        Some(Self {
            seconds_ago: u64::try_from(ago).unwrap_or(0),
            text: span.detail.clone(),
            waits: span.name == WAIT,
        })
    }

    /// `12 s ago`, `5 min ago`.
    pub(super) fn age(&self) -> String {
        match self.seconds_ago {
            seconds @ 0..120 => format!("{seconds} s ago"),
            seconds @ 120..7_200 => format!("{} min ago", seconds / 60),
            seconds => format!("{} h ago", seconds / 3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::trace::Span;

    use super::*;

    #[test]
    fn the_last_decision_about_the_pod_counts() {
        let span = |name: &str, object: &str, end_us: i64, detail: &str| Span {
            component: "scheduler".into(),
            name: name.into(),
            object: object.into(),
            end_us,
            detail: detail.into(),
            ..Span::default()
        };
        let spans = vec![
            span("decide", "pods/d/web", 1_000_000, "first"),
            span("decide", "pods/d/web", 2_000_000, "second"),
            span("bind", "pods/d/web", 3_000_000, "no decision"),
            span("decide", "pods/d/web-1", 3_000_000, "of another"),
            span("wait", "pods/d/early", 3_000_000, "others"),
        ];
        let chain = Chain { spans, ..Chain::default() };
        let last = |now_us| Decision::last(&chain, "d", "web", now_us);
        assert_eq!(last(14_000_000), Some(Decision { seconds_ago: 12, text: "second".into(), waits: false }));
        let early = Decision::last(&chain, "d", "early", 3_000_000);
        assert_eq!(early, Some(Decision { seconds_ago: 0, text: "others".into(), waits: true }));
        assert_eq!(last(0).map(|decision| decision.age()).as_deref(), Some("0 s ago"), "clocks differ");
        assert_eq!(last(302_000_000).map(|decision| decision.age()).as_deref(), Some("5 min ago"));
        assert_eq!(Decision::last(&chain, "e", "web", 0), None);
    }
}
