//! The rules of a schema, in the form in which they are checked. Its patterns were compiled when it was found structural.

use super::BuildError;
use super::props::Props;
use crate::rules::format::Format;
use crate::rules::pattern::Pattern;
use crate::rules::{Allowed, Bound, Checks, Counts, Junctors, Nested, NumberChecks, TextChecks};

/// What the values of a schema must be, of types that are stated elsewhere.
pub(super) fn checks(props: &Props, types: &'static [&'static str]) -> Result<Checks, BuildError> {
    let counts =
        |min: Option<i64>, max: Option<i64>| (min.is_some() || max.is_some()).then_some(Counts { min, max });
    Ok(Checks {
        types,
        nullable: props.nullable,
        format: Format::of(&props.format, types),
        text: text(props)?.map(Box::new),
        number: number(props).map(Box::new),
        items: counts(props.min_items, props.max_items),
        unique_items: props.unique_items,
        properties: counts(props.min_properties, props.max_properties),
        allowed: (!props.allowed.is_empty()).then(|| Box::new(Allowed::new(props.allowed.clone()))),
        required: props.required.clone(),
        junctors: junctors(props)?.map(Box::new),
    })
}

/// The types of a schema by its own words.
pub(super) fn types(props: &Props) -> &'static [&'static str] {
    match &*props.ty {
        _ if props.int_or_string => &["integer", "string"],
        "array" => &["array"],
        "boolean" => &["boolean"],
        "integer" => &["integer"],
        "number" => &["number"],
        "object" => &["object"],
        "string" => &["string"],
        _ => &[],
    }
}

/// A schema that is part of a rule.
pub(super) fn nested(props: &Props) -> Result<Nested, BuildError> {
    let properties = props.properties.iter().map(|(name, property)| Ok((name.clone(), nested(property)?)));
    Ok(Nested {
        checks: checks(props, types(props))?,
        properties: properties.collect::<Result<_, BuildError>>()?,
        items: props.item().map(nested).transpose()?.map(Box::new),
    })
}

fn text(props: &Props) -> Result<Option<TextChecks>, BuildError> {
    let is_any = props.min_length.is_some() || props.max_length.is_some() || !props.pattern.is_empty();
    if !is_any {
        return Ok(None);
    }
    let pattern = match &*props.pattern {
        "" => None,
        pattern => Some(Pattern::read_before(pattern)?),
    };
    Ok(Some(TextChecks { length_min: props.min_length, length_max: props.max_length, pattern }))
}

fn number(props: &Props) -> Option<NumberChecks> {
    let bound = |at: Option<f64>, is_exclusive| at.map(|at| Bound { at, is_exclusive });
    let maximum = bound(props.maximum, props.exclusive_maximum);
    let minimum = bound(props.minimum, props.exclusive_minimum);
    let is_any = props.multiple_of.is_some() || maximum.is_some() || minimum.is_some();
    is_any.then_some(NumberChecks { multiple_of: props.multiple_of, maximum, minimum })
}

fn junctors(props: &Props) -> Result<Option<Junctors>, BuildError> {
    let all = |schemas: &[Props]| schemas.iter().map(nested).collect::<Result<Vec<_>, _>>();
    let junctors = Junctors {
        all_of: all(&props.all_of)?,
        any_of: all(&props.any_of)?,
        one_of: all(&props.one_of)?,
        not: props.not.as_deref().map(nested).transpose()?,
    };
    let is_none =
        props.all_of.is_empty() && props.any_of.is_empty() && props.one_of.is_empty() && props.not.is_none();
    Ok((!is_none).then_some(junctors))
}
