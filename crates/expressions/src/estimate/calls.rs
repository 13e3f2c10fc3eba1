//! The costs of calls, and the sizes of their results.
//!
//! Source: cel-go's `checker/cost.go`, `ext/{lists,sets}.go`; `k8s.io/apiserver/pkg/cel/library/cost.go`
//! (`EstimateCallCost`).

use super::{CostEstimate, EntrySizes, Estimator, SizeEstimate};
use crate::charge::{CHECK, LIST_MADE, OBJECT_MADE, REGEX, TRAVERSAL};
use crate::syntax::ast::{Expr, Kind, Literal};
use crate::types::Type;

/// A call that is estimated.
pub(super) struct Called<'e, 'c> {
    pub(super) expr: &'e Expr,
    pub(super) function: &'c str,
    pub(super) overload: &'static str,
    pub(super) target: Option<&'e Expr>,
    pub(super) args: &'e [Expr],
}

/// A cost, and the size of what comes out if it is known.
type Estimated = (CostEstimate, Option<SizeEstimate>);

/// The longest regular expression of a named format.
const FORMAT_PATTERN_MAX: f64 = 128.0;
/// The longest text that a format is compared by.
const FORMAT_SIZE_MAX: u64 = 64;

const UNIT: CostEstimate = CostEstimate::fixed(1);

fn only(cost: CostEstimate) -> Option<Estimated> {
    Some((cost, None))
}

impl<'e> Estimator<'e> {
    /// What a call costs with its arguments, without its target.
    pub(super) fn function(&mut self, called: &Called<'e, '_>, costs: &[CostEstimate]) -> Estimated {
        let of_args = costs.iter().fold(CostEstimate::fixed(0), |sum, cost| sum + *cost);
        let known =
            self.of_lists(called).or_else(|| self.of_kubernetes(called)).or_else(|| self.of_texts(called));
        if let Some((cost, size)) = known {
            return (cost + of_args, size);
        }
        match (called.overload, costs) {
            ("logical_and" | "logical_or", [one, other]) => {
                (CostEstimate { min: one.min, max: one.max.saturating_add(other.max) }, None)
            }
            ("conditional", [condition, yes, no]) => {
                let size = self.conditional(called);
                (*condition + yes.union(*no), size)
            }
            _ => (UNIT + of_args, None),
        }
    }

    fn conditional(&mut self, called: &Called<'e, '_>) -> Option<SizeEstimate> {
        let [_, yes, no] = called.args else { return None };
        let both = united(self.entry_sizes(yes), self.entry_sizes(no));
        self.set_entries(called.expr, both);
        Some(self.size_or_unknown(yes).union(self.size_or_unknown(no)))
    }

    fn arg(&self, called: &Called<'e, '_>, index: usize) -> Option<SizeEstimate> {
        called.args.get(index).map(|arg| self.size_or_unknown(arg))
    }

    fn target(&self, called: &Called<'e, '_>) -> Option<SizeEstimate> {
        called.target.map(|target| self.size_or_unknown(target))
    }

    /// Functions of the language itself that take longer with larger values.
    fn of_texts(&mut self, called: &Called<'e, '_>) -> Option<Estimated> {
        match called.overload {
            "string_format" => only(self.target(called)?.scaled(TRAVERSAL)),
            "string_to_bytes" => {
                let size = self.arg(called, 0)?;
                // As upstream, whose product wraps.
                let bytes = SizeEstimate { min: size.min, max: size.max.wrapping_mul(4) };
                Some((size.scaled(TRAVERSAL), Some(bytes)))
            }
            "bytes_to_string" => {
                let size = self.arg(called, 0)?;
                Some((size.scaled(TRAVERSAL), Some(SizeEstimate { min: size.min / 4, max: size.max })))
            }
            "strings_quote" => {
                let size = self.arg(called, 0)?;
                let quoted = SizeEstimate {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                };
                Some((size.scaled(TRAVERSAL), Some(quoted)))
            }
            "starts_with_string" | "ends_with_string" => only(self.arg(called, 0)?.scaled(TRAVERSAL)),
            "in_list" => only(self.arg(called, 1)?.scaled(1.0)),
            "matches_string" => {
                let text = (self.target(called)? + SizeEstimate::fixed(1)).scaled(TRAVERSAL);
                only(text.times(self.arg(called, 0)?.scaled(REGEX)))
            }
            "contains_string" => {
                let text = self.target(called)?.scaled(TRAVERSAL);
                only(text.times(self.arg(called, 0)?.scaled(TRAVERSAL)))
            }
            "add_string" | "add_bytes" | "add_list" => self.joined(called),
            "compare_string" | "compare_bytes" | "equals" | "not_equals" => {
                let max = self.arg(called, 0)?.max.min(self.arg(called, 1)?.max);
                only(CostEstimate { min: u64::from(max > 0), max }.scaled(TRAVERSAL))
            }
            _ => None,
        }
    }

    fn joined(&mut self, called: &Called<'e, '_>) -> Option<Estimated> {
        let [one, other] = called.args else { return None };
        let size = self.size_or_unknown(one) + self.size_or_unknown(other);
        let both = united(self.entry_sizes(one), self.entry_sizes(other));
        self.set_entries(called.expr, both);
        let cost = if called.overload == "add_list" { UNIT } else { size.scaled(TRAVERSAL) };
        Some((cost, Some(size)))
    }

    /// Lists that are made, and lists as sets.
    fn of_lists(&self, called: &Called<'e, '_>) -> Option<Estimated> {
        let made = |factor: f64, size: SizeEstimate| {
            Some((size.scaled(factor) + UNIT + CostEstimate::fixed(LIST_MADE), Some(size)))
        };
        let squared = |size: SizeEstimate, element: Option<&Type>| {
            let is_text = matches!(element, Some(Type::String | Type::Bytes));
            made(if is_text { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
        };
        match called.overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => {
                only(self.arg(called, 0)?.times(self.arg(called, 1)?).scaled(1.0) + UNIT)
            }
            "list_sets_equivalent_list" => {
                only(self.arg(called, 0)?.times(self.arg(called, 1)?).scaled(2.0) + UNIT)
            }
            "list_slice" => {
                let max = self.target(called)?.max;
                let (begin, end) = (whole(called.args.first()?, 0), whole(called.args.get(1)?, max));
                made(1.0, SizeEstimate::fixed(end.wrapping_sub(begin)))
            }
            "lists_range" => made(1.0, SizeEstimate::fixed(whole(called.args.first()?, u64::MAX))),
            "list_reverse" => made(1.0, self.target(called)?),
            "list_flatten" | "list_flatten_int" => {
                let depth = called.args.first().map_or(1, |depth| whole(depth, u64::MAX));
                #[expect(clippy::cast_precision_loss, reason = "as upstream")]
                made(depth as f64, self.target(called)?)
            }
            "list_distinct" => {
                let size = self.target(called)?;
                made(2.0, size.times(size))
            }
            "list_sort" => squared(self.target(called)?, element(self.kind(called.target?))),
            "list_sort_by" => squared(self.arg(called, 0)?, element(self.kind(called.args.first()?))),
            _ => None,
        }
    }

    /// Functions that Kubernetes reckons with, by name.
    fn of_kubernetes(&self, called: &Called<'e, '_>) -> Option<Estimated> {
        match called.function {
            "check" => only(CostEstimate::fixed(CHECK)),
            "fieldSelector" | "labelSelector" => {
                let length = self.arg(called, 0)?;
                let requirements = length.scaled(0.5).times(CostEstimate::fixed(LIST_MADE + OBJECT_MADE));
                only(CostEstimate::fixed(LIST_MADE) + length.scaled(TRAVERSAL) + requirements)
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => self.gone_through(called),
            "url" | "jsonpatch.escapeKey" => {
                let size = self.arg(called, 0)?;
                Some((size.scaled(TRAVERSAL), Some(size)))
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.target(called)?;
                Some((size.scaled(TRAVERSAL), Some(size)))
            }
            "replace" => {
                let (size, old, new) = (self.target(called)?, self.arg(called, 0)?, self.arg(called, 1)?);
                Some((size.scaled(2.0 * TRAVERSAL), Some(replaced(size, old, new))))
            }
            "split" => {
                let size = self.target(called)?;
                let max = called.args.get(1).map_or(size.max, |limit| match &limit.kind {
                    Kind::Literal(Literal::Int(limit)) => limit.cast_unsigned(),
                    _ => size.max,
                });
                Some((size.scaled(2.0 * TRAVERSAL), Some(SizeEstimate { min: 0, max })))
            }
            "join" => self.joined_texts(called),
            "find" | "findAll" => {
                let size = self.target(called)?;
                let text = (size + SizeEstimate::fixed(1)).scaled(TRAVERSAL);
                let found = SizeEstimate { min: 0, max: size.max };
                Some((text.times(self.arg(called, 0)?.scaled(REGEX)), Some(found)))
            }
            "ip" if called.overload == "cidr_ip" => only(UNIT),
            "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                only(self.arg(called, 0)?.scaled(TRAVERSAL))
            }
            "ip.isCanonical" => only(self.arg(called, 0)?.scaled(2.0 * TRAVERSAL)),
            "containsIP" | "containsCIDR" => self.contained(called),
            "validate" => only(self.arg(called, 0)?.scaled(TRAVERSAL).scaled(FORMAT_PATTERN_MAX * REGEX)),
            "_==_" => self.compared(called),
            _ => None,
        }
    }

    /// Functions that look at each element, or at each character of a text.
    fn gone_through(&self, called: &Called<'e, '_>) -> Option<Estimated> {
        let target = called.target?;
        let size = self.size_or_unknown(target);
        // As upstream: what has no parameters is a text.
        let Some(element) = self.kind(target).parameters().into_iter().next() else {
            return only(size.scaled(TRAVERSAL));
        };
        let each = match element {
            Type::String | Type::Bytes => UNIT + self.element_size(target).scaled(TRAVERSAL),
            _ => UNIT,
        };
        only(size.times_cost(each))
    }

    /// The declared size of a list's elements.
    fn element_size(&self, list: &Expr) -> SizeEstimate {
        if self.path(list).is_empty() {
            return SizeEstimate::UNKNOWN;
        }
        self.declared_size(&self.extended(list, "@items")).unwrap_or(SizeEstimate::UNKNOWN)
    }

    fn joined_texts(&self, called: &Called<'e, '_>) -> Option<Estimated> {
        let target = called.target?;
        let count = self.size_or_unknown(target);
        let has_elements = !self.kind(target).parameters().is_empty();
        let mut size =
            if has_elements { count.times(self.element_size(target)) } else { SizeEstimate::fixed(0) };
        if let Some(separator) = self.arg(called, 0) {
            let between = SizeEstimate { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
            size = size + separator.times(between);
        }
        Some((size.scaled(TRAVERSAL), Some(size)))
    }

    fn contained(&self, called: &Called<'e, '_>) -> Option<Estimated> {
        let bytes = SizeEstimate { min: 4, max: 16 };
        let other = self.arg(called, 0)?;
        let mut cost = (bytes + bytes).scaled(TRAVERSAL);
        if called.function == "containsCIDR" {
            cost = cost + bytes.scaled(TRAVERSAL) + UNIT;
        }
        if matches!(called.overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
            cost = cost + other.scaled(TRAVERSAL);
        }
        only(cost)
    }

    fn compared(&self, called: &Called<'e, '_>) -> Option<Estimated> {
        let [one, other] = called.args else { return None };
        let kind = self.kind(one);
        if kind != self.kind(other) {
            return None;
        }
        match kind.name() {
            "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => only(UNIT),
            "kubernetes.NamedFormat" => only(CostEstimate { min: 1, max: FORMAT_SIZE_MAX }.scaled(TRAVERSAL)),
            "kubernetes.URL" => {
                let max = self.size(other).map_or(1, |size| size.max);
                only(CostEstimate { min: 1, max }.scaled(TRAVERSAL))
            }
            name if name.starts_with("kubernetes.authorization.") => only(UNIT),
            _ => None,
        }
    }
}

/// How large a text can be after something in it has been replaced.
fn replaced(size: SizeEstimate, old: SizeEstimate, new: SizeEstimate) -> SizeEstimate {
    // Between and around all characters, if nothing is replaced; as often as it fits; or without becoming longer.
    let (most, kept_max) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (size.max.div_ceil(old.min), 0)
    };
    let (fewest, kept_min) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (size.min.div_ceil(old.max), 0)
    };
    SizeEstimate {
        min: fewest.saturating_mul(new.min).saturating_add(kept_min),
        max: most.saturating_mul(new.max).saturating_add(kept_max),
    }
}

fn united(one: Option<EntrySizes>, other: Option<EntrySizes>) -> Option<EntrySizes> {
    let (one, other) = (one?, other?);
    Some(EntrySizes {
        is_list: one.is_list,
        key: one.key.union(other.key),
        value: one.value.union(other.value),
    })
}

fn element(kind: &Type) -> Option<&Type> {
    kind.parameters().into_iter().next()
}

/// A whole number that is written down.
fn whole(expr: &Expr, otherwise: u64) -> u64 {
    match &expr.kind {
        Kind::Literal(Literal::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => otherwise,
    }
}
