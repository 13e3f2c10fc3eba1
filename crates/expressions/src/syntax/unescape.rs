//! The content between quotes.

/// The bytes that a string or bytes literal means; `text` is without quotes and prefixes.
///
/// In strings `\x41` and `\101` are code points, in bytes they are bytes. A string's result is UTF-8.
pub(super) fn unescape(text: &[char], is_bytes: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(character) = rest.next() {
        if character != '\\' {
            push(&mut out, character);
            continue;
        }
        match rest.next()? {
            'a' => out.push(7),
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            same @ ('\\' | '\'' | '"' | '`' | '?') => push(&mut out, same),
            'u' if !is_bytes => push(&mut out, char::from_u32(number(&mut rest, 4, 16)?)?),
            'U' if !is_bytes => push(&mut out, char::from_u32(number(&mut rest, 8, 16)?)?),
            'x' | 'X' => code(&mut out, number(&mut rest, 2, 16)?, is_bytes)?,
            first @ '0'..='3' => {
                let high = first.to_digit(8)? * 64;
                code(&mut out, high + number(&mut rest, 2, 8)?, is_bytes)?;
            }
            _ => return None,
        }
    }
    Some(out)
}

fn number(rest: &mut impl Iterator<Item = char>, digits: usize, base: u32) -> Option<u32> {
    (0..digits).try_fold(0_u32, |sum, _| sum.checked_mul(base)?.checked_add(rest.next()?.to_digit(base)?))
}

fn code(out: &mut Vec<u8>, code: u32, is_bytes: bool) -> Option<()> {
    if is_bytes {
        out.push(u8::try_from(code).ok()?);
    } else {
        push(out, char::from_u32(code)?);
    }
    Some(())
}

fn push(out: &mut Vec<u8>, character: char) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}
