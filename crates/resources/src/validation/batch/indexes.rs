//! Indexes of a Job in one text: `1,3-5`.

/// Inclusive.
type Interval = (i64, i64);

/// Reads `1,3-5`: intervals in rising order, below `completions`.
pub(super) fn parse_indexes(text: &str, completions: i64) -> Result<Vec<Interval>, String> {
    let mut intervals: Vec<Interval> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = parse_interval(part, completions)?;
        if let Some((_, previous)) = intervals.last().filter(|(_, previous)| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        intervals.push((first, last));
    }
    Ok(intervals)
}

fn parse_interval(text: &str, completions: i64) -> Result<Interval, String> {
    let limits: Vec<_> = text.split('-').collect();
    let parse = |text: &str| {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    match limits[..] {
        [only] => parse(only).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (parse(first)?, parse(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_rise_and_stay_below_the_completions() {
        assert_eq!(parse_indexes("0,2-4", 5), Ok(vec![(0, 0), (2, 4)]));
        assert_eq!(parse_indexes("", 5), Ok(vec![]));
        for (text, error) in [
            ("5", "too large index: \"5\""),
            ("2,1", "non-increasing order, previous: 2, current: 1"),
            ("3-2", "non-increasing order, previous: 3, current: 2"),
            ("x", "cannot convert string to integer for index: \"x\""),
        ] {
            assert_eq!(parse_indexes(text, 5), Err(error.to_owned()), "{text}");
        }
    }
}
