//! The elements of DER: a tag, a length, a content. What they mean is known to whoever reads or writes them.
//!
//! Source: X.690, 8.1 and 10.1.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const SEQUENCE: u8 = 0x30;

/// An element of this tag and content.
pub(crate) fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let bytes = length.to_be_bytes();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
    let short = bytes.get(first..).unwrap_or_default();
    let mut encoded = vec![tag];
    // Lengths of 128 and more are written as their own length first.
    if length >= 0x80 {
        encoded.push(0x80 | u8::try_from(short.len()).unwrap_or_default());
    }
    encoded.extend_from_slice(short);
    encoded.extend_from_slice(content);
    encoded
}

/// The first element of `der`: its tag, its content, and what comes after it.
pub(crate) fn take(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_der_wants_them_and_read_again() {
        assert_eq!(tagged(4, &[7]), [4, 1, 7]);
        assert_eq!(tagged(4, &[0; 200]).get(..3), Some(&[4, 0x81, 200][..]));
        assert_eq!(tagged(4, &[0; 300]).get(..4), Some(&[4, 0x82, 1, 44][..]));
        for length in [0, 1, 127, 128, 255, 256, 300, 65536] {
            let content = vec![9; length];
            let both = [tagged(4, &content), vec![1]].concat();
            assert_eq!(take(&both), Some((4, content.as_slice(), &[1][..])), "{length}");
        }
    }

    #[test]
    fn what_is_cut_or_goes_on_for_ever_is_none() {
        for der in [&[][..], &[0x30], &[0x30, 0x05, 0x02], &[0x30, 0x84, 1, 1, 1, 1], &[0x30, 0x80]] {
            assert_eq!(take(der), None, "{der:?}");
        }
    }
}
