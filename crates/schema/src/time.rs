//! Times as Go reads and writes them: RFC 3339 with whole seconds, or with microseconds.
//!
//! Go is less strict than RFC 3339 (an hour may have one digit, a comma may stand for the point, and zones reach 24:60),
//! and takes no time with microseconds that has not six decimals. Its texts say what could not be read as which part.
//! Source: Go's `time.Parse`; `metav1.Time` and `metav1.MicroTime`.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};

use crate::go::quote_ascii;

/// The moment from which protobuf counts.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// Go's zero time, which it writes as null.
pub(crate) const ZERO: DateTime = DateTime::constant(1, 1, 1, 0, 0, 0, 0);
/// The decimals of a time with microseconds, as Go's layout has them.
const MICROS: &str = ".000000";

/// What a field holds of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Nothing: decimals are taken, and left out.
    Seconds,
    /// Six decimals.
    Micros,
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// A text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeError {
    /// A part has another shape.
    #[error(
        "parsing time {} as {}: cannot parse {} as {}",
        quote_ascii(text),
        quote_ascii(layout),
        quote_ascii(rest),
        quote_ascii(part)
    )]
    Part {
        /// The whole text.
        text: String,
        /// How it should be written, in Go's notation.
        layout: &'static str,
        /// The text from that part on.
        rest: String,
        /// The part, in Go's notation.
        part: &'static str,
    },
    /// A part's number is too small or too large.
    #[error("parsing time {}: {part} out of range", quote_ascii(text))]
    Range {
        /// The whole text.
        text: String,
        /// The name of the part.
        part: &'static str,
    },
    /// There is more after the time.
    #[error("parsing time {}: extra text: {}", quote_ascii(text), quote_ascii(rest))]
    Extra {
        /// The whole text.
        text: String,
        /// What is too much.
        rest: String,
    },
}

/// Reads a time; the result is in UTC.
///
/// # Errors
/// What Go says of a text that is none.
pub(crate) fn parse(text: &str, precision: Precision) -> Result<DateTime, TimeError> {
    let mut reader = Reader { text, rest: text, precision };
    let year = reader.year()?;
    reader.skip("-")?;
    let month = reader.number("01", "month", 1..=12)?;
    reader.skip("-")?;
    let day = reader.number("02", "day", 0..=99)?;
    reader.skip("T")?;
    let hour = reader.number("15", "hour", 0..=23)?;
    reader.skip(":")?;
    let minute = reader.number("04", "minute", 0..=59)?;
    reader.skip(":")?;
    let second = reader.number("05", "second", 0..=59)?;
    let nanosecond = reader.fraction()?;
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(TimeError::Extra { text: text.to_owned(), rest: reader.rest.to_owned() });
    }
    let date = Date::new(year, month, day).map_err(|_| reader.range("day"))?;
    let time = Time::new(hour, minute, second, nanosecond).map_err(|_| reader.range("second"))?;
    date.to_datetime(time).checked_sub(offset).map_err(|_| reader.range("year"))
}

/// A text that is read from left to right.
struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
    precision: Precision,
}

impl Reader<'_> {
    fn range(&self, part: &'static str) -> TimeError {
        TimeError::Range { text: self.text.to_owned(), part }
    }

    fn wrong(&self, part: &'static str) -> TimeError {
        let (text, rest) = (self.text.to_owned(), self.rest.to_owned());
        TimeError::Part { text, layout: self.precision.layout(), rest, part }
    }

    fn skip(&mut self, prefix: &'static str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(prefix).ok_or_else(|| self.wrong(prefix))?;
        Ok(())
    }

    /// The digits at the beginning of what is left, from byte `from` on.
    fn digits(&self, from: usize) -> &str {
        let after = self.rest.get(from..).unwrap_or_default();
        let end = after.bytes().take_while(u8::is_ascii_digit).count();
        after.get(..end).unwrap_or_default()
    }

    /// Goes on after `bytes` more.
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn year(&mut self) -> Result<i16, TimeError> {
        let digits = self.digits(0).get(..4).and_then(|digits| digits.parse().ok());
        let year = digits.ok_or_else(|| self.wrong("2006"))?;
        self.advance(4);
        Ok(year)
    }

    /// A number of two digits; an hour may have one.
    fn number(
        &mut self,
        part: &'static str,
        name: &'static str,
        range: std::ops::RangeInclusive<i8>,
    ) -> Result<i8, TimeError> {
        let length = self.digits(0).len().min(2);
        let is_whole = length == 2 || length == 1 && part == "15";
        let read = self.digits(0).get(..length).filter(|_| is_whole).and_then(|digits| digits.parse().ok());
        let number = read.ok_or_else(|| self.wrong(part))?;
        if !range.contains(&number) {
            return Err(self.range(name));
        }
        self.advance(length);
        Ok(number)
    }

    /// Nanoseconds.
    fn fraction(&mut self) -> Result<i32, TimeError> {
        let has_point = self.rest.starts_with(['.', ',']);
        let digits = if has_point { self.digits(1) } else { "" };
        let wanted = match self.precision {
            Precision::Seconds => digits,
            Precision::Micros => digits.get(..MICROS.len() - 1).ok_or_else(|| self.wrong(MICROS))?,
        };
        if wanted.is_empty() {
            return Ok(0);
        }
        let nanos = wanted.bytes().chain(std::iter::repeat(b'0')).take(9);
        let nanos = nanos.fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'));
        self.advance(1 + wanted.len());
        Ok(nanos)
    }

    /// How far clocks are ahead of UTC.
    fn offset(&mut self) -> Result<SignedDuration, TimeError> {
        const PART: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(SignedDuration::ZERO);
        }
        let read = || {
            let (hours, minutes) = (self.digits(1).get(..2)?, self.digits(4).get(..2)?);
            self.rest.get(3..)?.starts_with(':').then_some(())?;
            Some((hours.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?))
        };
        let (hours, minutes) = read().ok_or_else(|| self.wrong(PART))?;
        if hours > 24 {
            return Err(self.range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.range("time zone offset minute"));
        }
        let ahead = SignedDuration::from_mins(hours * 60 + minutes);
        let offset = match self.rest.as_bytes().first() {
            Some(b'+') => ahead,
            Some(b'-') => -ahead,
            _ => return Err(self.wrong(PART)),
        };
        self.advance(6);
        Ok(offset)
    }
}

/// Writes a time.
pub(crate) fn format(time: DateTime, precision: Precision) -> String {
    let layout = match precision {
        Precision::Seconds => "%Y-%m-%dT%H:%M:%SZ",
        Precision::Micros => "%Y-%m-%dT%H:%M:%S.%6fZ",
    };
    time.strftime(layout).to_string()
}

/// Seconds since 1970 and nanoseconds, as protobuf has a time.
pub(crate) fn to_seconds(time: DateTime) -> (i64, i32) {
    let since = time.duration_since(EPOCH);
    let (seconds, nanos) = (since.as_secs(), since.subsec_nanos());
    if nanos < 0 { (seconds - 1, nanos + 1_000_000_000) } else { (seconds, nanos) }
}

/// The time so many seconds and nanoseconds after 1970; `None` if the years 1 to 9999 do not have it.
pub(crate) fn from_seconds(seconds: i64, nanos: i32) -> Option<DateTime> {
    if !(0..1_000_000_000).contains(&nanos) {
        return None;
    }
    let time = EPOCH.checked_add(SignedDuration::new(seconds, nanos)).ok()?;
    (1..=9999).contains(&time.year()).then_some(time)
}

#[cfg(test)]
mod tests;
