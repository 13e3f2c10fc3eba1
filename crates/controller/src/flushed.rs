//! Tells that somebody else has taken rules from the kernel, which were made again: in the log, on the Node, and in a count.

use std::sync::Arc;

use base::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::event::EventType;
use crate::informer::Informers;
use crate::record::{self, Recorder};

/// Source: none upstream, whose proxy tells its log only.
const REASON: &str = "FlushedRules";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRules {
    rules: &'static str,
}

#[derive(Debug)]
struct Counts(Family<OfRules, Counter>);

impl Counts {
    fn new(metrics: &Metrics) -> Self {
        let flushed = Family::default();
        let help = "How often somebody else has taken rules from the kernel, which were made again";
        metrics.register("knarr_flushed_rules", help, &flushed);
        Self(flushed)
    }
}

/// The teller for the rules of one part. Cloning shares it.
#[derive(Clone)]
pub struct FlushedRules {
    recorder: Recorder,
    node: String,
    rules: &'static str,
    counts: Arc<Counts>,
}

impl FlushedRules {
    /// One for what is called `rules` ("of Services") on a Node, by a recorder of the part that makes them.
    pub fn new(informers: &Informers, recorder: Recorder, node: &str, rules: &'static str) -> Self {
        let counts = informers.metrics().registry().part(Counts::new);
        Self { recorder, node: node.to_owned(), rules, counts }
    }

    /// They were made again.
    pub fn tell(&self) {
        let rules = self.rules;
        tracing::warn!(rules, "somebody has taken rules from the kernel; they were made again");
        self.counts.0.get_or_create(&OfRules { rules }).inc();
        let message = format!(
            "Somebody on this host has taken the rules {rules} from the kernel, as `nft flush ruleset` or a firewall that \
             reloads does; they were made again"
        );
        self.recorder.event(record::node(&self.node), EventType::Warning, REASON, message);
    }
}
