//! Resource quantities: `100m`, `1.5Gi`, `1e3`.
//!
//! A quantity is a whole number of nano units and the family of suffixes it was written in; its text is canonical:
//! no fraction, the largest suffix that needs none.
//! Source: `k8s.io/apimachinery/pkg/api/resource`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
/// Larger amounts with a binary suffix are capped, as upstream does at 2^63 - 1.
const BINARY_UNITS_MAX: i128 = i64::MAX as i128;
/// Larger amounts of other suffixes are capped: upstream has no bound for them.
const UNITS_MAX: i128 = 10_000_000_000_000_000_000_000_000;

/// The family of suffixes a quantity is printed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `e3`, `e6`, ...
    DecimalExponent,
}

/// An amount of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// A text that is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text has not the right shape.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// `units` whole units.
    pub fn new(units: i64, format: Format) -> Self {
        Self { nanos: i128::from(units) * NANO, format }
    }

    /// `milli` thousandths.
    pub fn from_milli(milli: i64) -> Self {
        Self { nanos: i128::from(milli) * (NANO / 1000), format: Format::DecimalSi }
    }

    /// Whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        self.scaled(NANO)
    }

    /// Thousandths, rounded away from zero.
    pub fn milli_value(self) -> i64 {
        self.scaled(NANO / 1000)
    }

    fn scaled(self, step: i128) -> i64 {
        let rounded = self.nanos / step + (self.nanos % step).signum();
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whole thousandths, rounded away from zero.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        let step = NANO / 1000;
        let rest = self.nanos % step;
        let up = if rest == 0 { 0 } else { step * rest.signum() };
        Self { nanos: self.nanos - rest + up, ..self }
    }

    /// The amount in billionths.
    pub fn to_nanos(self) -> i128 {
        self.nanos
    }

    /// -1, 0 or 1.
    pub fn signum(self) -> i32 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// `true` if it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// `true` if it is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// The sum; printed like `self` unless that is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference; printed like `self` unless that is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_sub(other.nanos), format }
    }
}

/// The text that is written for a quantity that was read: the canonical one, unless what was read passes for it already,
/// as `1E3`, `+5` and `1.005` do.
///
/// # Errors
/// The text is none.
pub fn rewritten(text: &str) -> Result<String, ParseError> {
    let quantity: Quantity = text.parse()?;
    Ok(if is_kept(text) { text.to_owned() } else { quantity.to_string() })
}

/// Whether upstream's reader takes the text for canonical. Source: `ParseQuantity`, where it keeps `s`.
fn is_kept(text: &str) -> bool {
    /// Source: `maxInt64Factors`.
    const DIGITS_MAX: usize = 18;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text).trim_start_matches('0');
    let number_len = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = unsigned.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let Ok(Scale { binary_shift, decimal_exponent, format }) = scale_of(suffix) else { return false };
    if format == Format::BinarySi {
        let precision = 14 - i64::from(binary_shift) * 3 / 10;
        let is_odd = whole.parse().is_ok_and(|number: i64| number & 7 != 0);
        return fraction.is_empty() && i64::try_from(whole.len()).is_ok_and(|len| len <= precision) && is_odd;
    }
    let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let scale = decimal_exponent.saturating_sub(places);
    whole.len() + fraction.len() <= DIGITS_MAX
        && scale >= -9
        && scale % 3 == 0
        && !whole.is_empty()
        && !format!("{whole}{fraction}").ends_with("000")
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let number_len = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // No digits at all are 0: upstream's scanner takes `.` and `m`.
        if fraction.contains('.') || text.is_empty() {
            return Err(ParseError::Format);
        }
        let scale = scale_of(suffix)?;
        let is_binary = scale.format == Format::BinarySi;
        let max = if is_binary { BINARY_UNITS_MAX } else { UNITS_MAX };
        let nanos = nanos_of(whole, fraction, scale).min(max * NANO);
        let is_fraction = (1..NANO).contains(&nanos);
        let format = if is_binary && is_fraction { Format::DecimalSi } else { scale.format };
        Ok(Self { nanos: if text.starts_with('-') { -nanos } else { nanos }, format })
    }
}

#[derive(Clone, Copy)]
struct Scale {
    binary_shift: u32,
    decimal_exponent: i32,
    format: Format,
}

fn scale_of(suffix: &str) -> Result<Scale, ParseError> {
    let decimal = |decimal_exponent| Scale { binary_shift: 0, decimal_exponent, format: Format::DecimalSi };
    let binary = |binary_shift| Scale { binary_shift, decimal_exponent: 0, format: Format::BinarySi };
    Ok(match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        other => {
            let exponent = other.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse::<i64>().ok());
            let exponent = exponent.ok_or_else(|| refusal(other))?;
            // What 32 bits do not hold is beyond all bounds.
            let decimal_exponent =
                i32::try_from(exponent).unwrap_or(if exponent < 0 { i32::MIN } else { i32::MAX });
            Scale { binary_shift: 0, decimal_exponent, format: Format::DecimalExponent }
        }
    })
}

/// Letters, then a sign, then digits make a suffix, though an unknown one; all else has not the shape of a quantity.
fn refusal(suffix: &str) -> ParseError {
    let exponent = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { ParseError::Suffix } else { ParseError::Format }
}

/// The amount in nano units, rounded up, capped far above what is kept.
fn nanos_of(whole: &str, fraction: &str, scale: Scale) -> i128 {
    const CAP: i128 = UNITS_MAX * NANO;
    let digits = whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b - b'0'));
    // Digits beyond the cap times 100 only need to be known to be many, or to be more than nothing.
    let mut mantissa: i128 = 0;
    let mut exponent = scale.decimal_exponent.saturating_add(9);
    exponent = exponent.saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
    let mut has_rest = false;
    for digit in digits {
        if mantissa > CAP * 100 {
            exponent = exponent.saturating_add(1);
            has_rest |= digit != 0;
        } else {
            mantissa = mantissa * 10 + digit;
        }
    }
    if mantissa == 0 {
        return 0;
    }
    mantissa = match shifted(mantissa, scale.binary_shift) {
        Some(mantissa) => mantissa,
        None => return CAP,
    };
    while exponent > 0 {
        mantissa = match mantissa.checked_mul(10) {
            Some(m) if m < CAP * 10_000 || exponent < 9 => m,
            _ => return CAP,
        };
        exponent -= 1;
    }
    while exponent < 0 && mantissa > 1 {
        has_rest |= mantissa % 10 != 0;
        mantissa /= 10;
        exponent += 1;
        if mantissa == 0 {
            return 1;
        }
    }
    if exponent < 0 {
        return 1;
    }
    mantissa + i128::from(has_rest)
}

fn shifted(mantissa: i128, shift: u32) -> Option<i128> {
    mantissa.checked_mul(1_i128.checked_shl(shift)?)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let is_binary = self.format == Format::BinarySi && self.is_whole() && self.nanos.abs() >= 1024 * NANO;
        if is_binary {
            let (amount, steps) = reduced(self.nanos / NANO, 1024, BINARY.len() - 1);
            return write!(f, "{amount}{}", BINARY.get(steps).copied().unwrap_or_default());
        }
        let (amount, steps) = reduced(self.nanos, 1000, DECIMAL.len() - 1);
        if self.format == Format::DecimalExponent && steps != 3 {
            let exponent = i64::try_from(steps).unwrap_or_default() * 3 - 9;
            return write!(f, "{amount}e{exponent}");
        }
        write!(f, "{amount}{}", DECIMAL.get(steps).copied().unwrap_or_default())
    }
}

/// `amount` without its factors `base`, and how many were taken out.
fn reduced(mut amount: i128, base: i128, steps_max: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < steps_max && amount % base == 0 {
        amount /= base;
        steps += 1;
    }
    (amount, steps)
}

#[cfg(test)]
mod tests;
