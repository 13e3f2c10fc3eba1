//! Indexes of a Job in one text: `1,3-5`.

/// Inclusive.
type Interval = (i64, i64);

/// The reason why a text is no list of indexes. The texts are upstream's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IndexError {
    #[error("cannot convert string to integer for index: {0:?}")]
    NoNumber(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    Parts(String),
}

/// Reads `1,3-5`: intervals in rising order, below `completions`.
pub(super) fn parse_indexes(text: &str, completions: i64) -> Result<Vec<Interval>, IndexError> {
    let mut intervals: Vec<Interval> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = parse_interval(part, completions)?;
        if let Some(&(_, previous)) = intervals.last().filter(|(_, previous)| *previous >= first) {
            return Err(IndexError::Order { previous, current: first });
        }
        intervals.push((first, last));
    }
    Ok(intervals)
}

fn parse_interval(text: &str, completions: i64) -> Result<Interval, IndexError> {
    let limits: Vec<_> = text.split('-').collect();
    let parse = |text: &str| {
        let number: i64 = text.parse().map_err(|_| IndexError::NoNumber(text.to_owned()))?;
        if number >= completions { Err(IndexError::TooLarge(text.to_owned())) } else { Ok(number) }
    };
    match limits[..] {
        [only] => parse(only).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (parse(first)?, parse(last)?);
            if first >= last {
                return Err(IndexError::Order { previous: first, current: last });
            }
            Ok((first, last))
        }
        _ => Err(IndexError::Parts(text.to_owned())),
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
            let found = parse_indexes(text, 5).map_err(|why| why.to_string());
            assert_eq!(found, Err(error.to_owned()), "{text}");
        }
    }
}
