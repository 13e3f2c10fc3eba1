//! Eviction thresholds as operators write them. Pure.
//!
//! Source: `pkg/kubelet/eviction/helpers.go` and `pkg/kubelet/eviction/defaults_linux.go` of upstream.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use machinery::quantity::{self, Quantity};

use crate::config::duration::duration;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory of the node.
    MemoryAvailable,
    /// Memory of all Pods together.
    AllocatableMemoryAvailable,
    /// Bytes of the file system with volumes and logs.
    NodeFsAvailable,
    /// Inodes of that.
    NodeFsInodesFree,
    /// Bytes of the file system with images.
    ImageFsAvailable,
    /// Inodes of that.
    ImageFsInodesFree,
    /// Processes and threads.
    PidAvailable,
}

/// Signals that have no thresholds of their own: they follow those of the disk that containers are on.
/// Source: `UpdateContainerFsThresholds`.
pub const DERIVED: [&str; 2] = ["containerfs.available", "containerfs.inodesFree"];

impl Signal {
    const ALL: [(Self, &'static str); 7] = [
        (Self::MemoryAvailable, "memory.available"),
        (Self::AllocatableMemoryAvailable, "allocatableMemory.available"),
        (Self::NodeFsAvailable, "nodefs.available"),
        (Self::NodeFsInodesFree, "nodefs.inodesFree"),
        (Self::ImageFsAvailable, "imagefs.available"),
        (Self::ImageFsInodesFree, "imagefs.inodesFree"),
        (Self::PidAvailable, "pid.available"),
    ];

    /// Upstream's word.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| *name)
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(signal, _)| *signal)
    }

    /// The node's condition while the threshold is crossed.
    pub fn condition(self) -> &'static str {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => "MemoryPressure",
            Self::PidAvailable => "PIDPressure",
            _ => "DiskPressure",
        }
    }

    /// What is scarce, as messages name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => "memory",
            Self::NodeFsAvailable | Self::ImageFsAvailable => "ephemeral-storage",
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }
}

/// A part of the capacity, or so much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// In the signal's unit.
    Absolute(i64),
    /// Of the capacity, between 0 and 1.
    Share(f64),
}

/// Why a text is no amount that something must fall below.
#[derive(Debug, thiserror::Error)]
enum AmountError {
    #[error("{0:?} is no percentage")]
    NoPercentage(String),
    #[error("percentage must be between 0% and 100%: {0}")]
    Percentage(String),
    #[error("{0:?}: {1}")]
    NoQuantity(String, quantity::ParseError),
    #[error("quantity must be positive: {0}")]
    Quantity(String),
    #[error("percentage must be positive: {0}")]
    NegativePercentage(String),
    #[error("quantity must not be negative: {0}")]
    NegativeQuantity(String),
}

impl Amount {
    /// How much it is of `capacity`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "as upstream computes it"
    )]
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Absolute(amount) => amount,
            Self::Share(share) => (capacity as f64 * share) as i64,
        }
    }

    fn parse(text: &str) -> Result<Option<Self>, AmountError> {
        if let Some(percent) = percent(text)? {
            if !(0.0..=100.0).contains(&percent) {
                return Err(AmountError::Percentage(text.to_owned()));
            }
            // Source: both ends switch the threshold off.
            return Ok((percent > 0.0 && percent < 100.0).then_some(Self::Share(percent / 100.0)));
        }
        let quantity = quantity(text)?;
        if quantity.signum() <= 0 {
            return Err(AmountError::Quantity(text.to_owned()));
        }
        Ok(Some(Self::Absolute(quantity.value())))
    }

    /// What must be won back beyond a threshold: nothing, too, and more than there is. Source: `parseMinimumReclaims`.
    fn parse_reclaim(text: &str) -> Result<Self, AmountError> {
        if let Some(percent) = percent(text)? {
            let is_positive = percent > 0.0;
            return is_positive
                .then_some(Self::Share(percent / 100.0))
                .ok_or_else(|| AmountError::NegativePercentage(text.to_owned()));
        }
        let quantity = quantity(text)?;
        if quantity.signum() < 0 {
            return Err(AmountError::NegativeQuantity(text.to_owned()));
        }
        Ok(Self::Absolute(quantity.value()))
    }
}

/// `None`: it is none.
fn percent(text: &str) -> Result<Option<f64>, AmountError> {
    let Some(number) = text.strip_suffix('%') else { return Ok(None) };
    number.parse().map(Some).map_err(|_| AmountError::NoPercentage(text.to_owned()))
}

fn quantity(text: &str) -> Result<Quantity, AmountError> {
    text.parse().map_err(|error| AmountError::NoQuantity(text.to_owned(), error))
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(amount) => write!(f, "{amount}"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

/// Below which amount something must happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// What is watched.
    pub signal: Signal,
    /// What must be available at least.
    pub amount: Amount,
    /// How long it may be less: zero for hard thresholds.
    pub grace: Duration,
    /// So much more than the amount must be available before it is over.
    pub minimum_reclaim: Option<Amount>,
}

impl Threshold {
    /// Whether Pods get no time to end.
    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// What operators say.
#[derive(Clone, Debug, PartialEq)]
pub struct Statements {
    /// `evictionHard`.
    pub hard: BTreeMap<String, String>,
    /// `evictionSoft`.
    pub soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`.
    pub soft_grace: BTreeMap<String, String>,
    /// `evictionMinimumReclaim`.
    pub minimum_reclaim: BTreeMap<String, String>,
}

impl Statements {
    /// Whether they are about any of these signals.
    pub(crate) fn mention(&self, signals: impl IntoIterator<Item = &'static str>) -> bool {
        let all = [&self.hard, &self.soft, &self.soft_grace, &self.minimum_reclaim];
        signals.into_iter().any(|signal| all.iter().any(|statements| statements.contains_key(signal)))
    }
}

impl Default for Statements {
    fn default() -> Self {
        let hard = [
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ];
        Self {
            hard: hard.map(|(signal, amount)| (signal.to_owned(), amount.to_owned())).into(),
            soft: BTreeMap::new(),
            soft_grace: BTreeMap::new(),
            minimum_reclaim: BTreeMap::new(),
        }
    }
}

/// When Pods must go.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Hard ones first.
    pub thresholds: Vec<Threshold>,
    /// How long a condition stays after it was seen last. Source: `evictionPressureTransitionPeriod`.
    pub transition_period: Duration,
    /// The longest that a Pod may take when a soft threshold is crossed. Source: `evictionMaxPodGracePeriod`.
    pub max_pod_grace_seconds: i64,
    /// As they were written.
    pub statements: Statements,
}

impl Default for Policy {
    fn default() -> Self {
        // The defaults are right: a test reads them.
        Self::parse(&Statements::default()).unwrap_or_else(|_| Self {
            thresholds: Vec::new(),
            transition_period: TRANSITION_PERIOD,
            max_pod_grace_seconds: 0,
            statements: Statements::default(),
        })
    }
}

const TRANSITION_PERIOD: Duration = Duration::from_secs(300);

impl Policy {
    /// Reads statements.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn parse(statements: &Statements) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut thresholds = read(&statements.hard, "evictionHard", &mut errors);
        let graces = by_signal(&statements.soft_grace, "evictionSoftGracePeriod", duration, &mut errors);
        for mut soft in read(&statements.soft, "evictionSoft", &mut errors) {
            match graces.get(&soft.signal) {
                Some(grace) => {
                    soft.grace = *grace;
                    thresholds.push(soft);
                }
                None => errors.push(format!(
                    "evictionSoft: grace period must be specified for the soft eviction threshold {}",
                    soft.signal.as_str()
                )),
            }
        }
        const RECLAIM: &str = "evictionMinimumReclaim";
        for (signal, amount) in
            by_signal(&statements.minimum_reclaim, RECLAIM, Amount::parse_reclaim, &mut errors)
        {
            for threshold in thresholds.iter_mut().filter(|t| t.signal == signal) {
                threshold.minimum_reclaim = Some(amount);
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let memory = thresholds.iter().find(|t| t.signal == Signal::MemoryAvailable && t.is_hard()).copied();
        let has_own = thresholds.iter().any(|t| t.signal == Signal::AllocatableMemoryAvailable);
        if let Some(memory) = memory.filter(|_| !has_own) {
            thresholds.push(Threshold { signal: Signal::AllocatableMemoryAvailable, ..memory });
        }
        Ok(Self {
            thresholds,
            transition_period: TRANSITION_PERIOD,
            max_pod_grace_seconds: 0,
            statements: statements.clone(),
        })
    }

    /// The defaults of a Node on a disk that it shares with others: it goes on until a twentieth is left, as k3s does.
    pub fn of_shared_disk() -> Self {
        let mut statements = Statements::default();
        for signal in ["nodefs.available", "imagefs.available"] {
            statements.hard.insert(signal.to_owned(), "5%".to_owned());
        }
        Self::parse(&statements).unwrap_or_default()
    }

    /// Nothing holds all Pods together below what they may have, so nobody goes for it, unless somebody has said so.
    ///
    /// Source: `ParseThresholdConfig` without `pods` in `enforceNodeAllocatable`.
    pub(crate) fn leave_pods_together(&mut self) {
        const SIGNAL: Signal = Signal::AllocatableMemoryAvailable;
        if !self.statements.hard.contains_key(SIGNAL.as_str()) {
            self.thresholds.retain(|threshold| threshold.signal != SIGNAL || !threshold.is_hard());
        }
    }

    /// What a hard threshold keeps from Pods, of a capacity.
    pub fn reserved(&self, signal: Signal, capacity: i64) -> i64 {
        let hard = self.thresholds.iter().find(|t| t.signal == signal && t.is_hard());
        hard.map_or(0, |threshold| threshold.amount.of(capacity))
    }
}

fn read(statements: &BTreeMap<String, String>, field: &str, errors: &mut Vec<String>) -> Vec<Threshold> {
    let mut thresholds = Vec::new();
    for (name, text) in statements {
        let signal = Signal::parse(name);
        if signal.is_none() && !DERIVED.contains(&name.as_str()) {
            errors.push(format!("{field}: unsupported eviction signal {name}"));
            continue;
        }
        match Amount::parse(text) {
            Ok(Some(amount)) => {
                let Some(signal) = signal else { continue };
                thresholds.push(Threshold { signal, amount, grace: Duration::ZERO, minimum_reclaim: None });
            }
            Ok(None) => {}
            Err(error) => errors.push(format!("{field}[{name}]: {error}")),
        }
    }
    thresholds
}

/// What is said of signals, by them.
fn by_signal<T, E: fmt::Display>(
    statements: &BTreeMap<String, String>,
    field: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    errors: &mut Vec<String>,
) -> BTreeMap<Signal, T> {
    let mut found = BTreeMap::new();
    for (name, text) in statements {
        match (Signal::parse(name), parse(text)) {
            (Some(signal), Ok(value)) => drop(found.insert(signal, value)),
            (None, Ok(_)) if DERIVED.contains(&name.as_str()) => {}
            (None, _) => errors.push(format!("{field}: unsupported eviction signal {name}")),
            (_, Err(error)) => errors.push(format!("{field}[{name}]: {error}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(hard: &[(&str, &str)], soft: &[(&str, &str)], grace: &[(&str, &str)]) -> Statements {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Statements {
            hard: map(hard),
            soft: map(soft),
            soft_grace: map(grace),
            minimum_reclaim: BTreeMap::new(),
        }
    }

    #[test]
    fn defaults_are_upstreams() {
        let policy = Policy::parse(&Statements::default()).unwrap();
        assert_eq!(policy.thresholds.len(), 6, "five, and one for the memory of all Pods");
        assert_eq!(policy.reserved(Signal::MemoryAvailable, 1 << 34), 100 << 20);
        assert_eq!(policy.reserved(Signal::NodeFsAvailable, 1000), 100);
        assert_eq!(policy, Policy::default());
        assert_eq!(Policy::of_shared_disk().reserved(Signal::NodeFsAvailable, 1000), 50);
    }

    #[test]
    fn both_ends_of_a_percentage_switch_it_off() {
        for text in ["0%", "100%"] {
            let policy = Policy::parse(&statements(&[("pid.available", text)], &[], &[])).unwrap();
            assert!(policy.thresholds.is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_full() {
        let wrong = statements(
            &[("memory.available", "-1"), ("nodefs.available", "101%")],
            &[("pid.available", "5%")],
            &[("imagefs.available", "soon")],
        );
        let errors = Policy::parse(&wrong).unwrap_err();
        assert_eq!(errors.len(), 4, "{errors:?}");
    }

    /// Pairs apart by commas, as flags have them.
    fn pairs(text: &str) -> BTreeMap<String, String> {
        text.split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    /// What hard and soft statements, graces and reclaims come to; `None`: they are refused.
    fn check(hard: &str, soft: &str, grace: &str, reclaim: &str, expect: Option<&[&str]>) {
        let statements = Statements {
            hard: pairs(hard),
            soft: pairs(soft),
            soft_grace: pairs(grace),
            minimum_reclaim: pairs(reclaim),
        };
        let policy = Policy::parse(&statements);
        let found = policy.ok().map(|policy| {
            let shown = |t: &Threshold| {
                let reclaim = t.minimum_reclaim.map(|amount| format!(" +{amount}")).unwrap_or_default();
                format!("{}<{} {}s{reclaim}", t.signal.as_str(), t.amount, t.grace.as_secs())
            };
            policy.thresholds.iter().map(shown).collect::<Vec<_>>()
        });
        let expect = expect.map(|rows| rows.iter().map(|row| (*row).to_owned()).collect());
        assert_eq!(found, expect, "{hard} | {soft} | {grace} | {reclaim}");
    }

    const MEMORY: &str = "memory.available=30s";

    /// Source: `TestParseThresholdConfig`, `TestAddAllocatableThresholds` of upstream's `pkg/kubelet/eviction`.
    #[test]
    fn statements_mean_what_they_mean_upstream() {
        check("", "", "", "", Some(&[]));
        let all = [
            "memory.available<157286400 0s +0",
            "memory.available<314572800 30s +0",
            "allocatableMemory.available<157286400 0s +0",
        ];
        check("memory.available=150Mi", "memory.available=300Mi", MEMORY, "memory.available=0", Some(&all));
        let shares = [
            "memory.available<10% 0s +5%",
            "memory.available<30% 30s +5%",
            "allocatableMemory.available<10% 0s +5%",
        ];
        check("memory.available=10%", "memory.available=30%", MEMORY, "memory.available=5%", Some(&shares));
        let disk = ["nodefs.available<10.5% 0s +200%", "pid.available<1000 0s"];
        check("nodefs.available=10.5%,pid.available=1k", "", "", "nodefs.available=200%", Some(&disk));
        let inodes = ["imagefs.inodesFree<157286400 0s +2147483648", "nodefs.inodesFree<20% 90s"];
        check(
            "imagefs.inodesFree=150Mi",
            "nodefs.inodesFree=20%",
            "nodefs.inodesFree=1m30s",
            "imagefs.inodesFree=2Gi",
            Some(&inodes),
        );
        check("memory.available=0%", "memory.available=100%", "", "", Some(&[]));
        check("containerfs.available=5%", "", "", "containerfs.inodesFree=0", Some(&[]));
        check("", "", "", "memory.available=0Mi,nodefs.available=500Mi,imagefs.available=2Gi", Some(&[]));
    }

    #[test]
    fn statements_that_mean_nothing_are_refused() {
        for text in [
            "mem.available=150Mi",
            "memory.available=-150Mi",
            "memory.available=0",
            "memory.available=-15%",
            "memory.available=150%",
            "memory.available=150Mi,invalid.foo=150Mi",
            "memory.available=",
            "memory.available=10..5%",
            "memory.available=%",
        ] {
            check(text, "", "", "", None);
            check("", text, MEMORY, "", None);
        }
        for grace in [
            "",
            "memory.available=-30s",
            "mem.available=30s",
            "memory.available=30mins",
            "nodefs.available=30s",
        ] {
            check("", "memory.available=150Mi", grace, "", None);
        }
        for reclaim in [
            "memory.available=-300Mi",
            "mem.available=300Mi",
            "memory.available=",
            "memory.available=-15%",
            "memory.available=0%",
            "memory.available=10..5%",
        ] {
            check("", "", "", reclaim, None);
        }
    }

    #[test]
    fn soft_thresholds_have_their_grace() {
        let soft = statements(&[], &[("nodefs.available", "5Gi")], &[("nodefs.available", "1m30s")]);
        let policy = Policy::parse(&soft).unwrap();
        assert_eq!(policy.thresholds[0].grace.as_secs(), 90);
        assert!(!policy.thresholds[0].is_hard());
        assert_eq!(policy.reserved(Signal::NodeFsAvailable, 1), 0, "only hard ones are kept from Pods");
    }
}
