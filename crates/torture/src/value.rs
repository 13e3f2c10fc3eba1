//! Values that show whether they are whole: a tag, which is unique, and a filler that follows from it.

/// Some values take pages of their own.
const FILLER_BYTES_MAX: usize = 9000;

/// The bytes of the value with this tag.
#[must_use]
pub fn encode(tag: &str) -> Vec<u8> {
    let mut state = tag.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // One in eight is long.
    let long = state >> 61 == 0;
    let bytes = usize::try_from(state >> 32).unwrap_or(0) % if long { FILLER_BYTES_MAX } else { 200 };
    let mut out = format!("{tag};{bytes};").into_bytes();
    for _ in 0..bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.push(b'a' + u8::try_from((state >> 33) % 26).unwrap_or(0));
    }
    out
}

/// The tag of a value; bytes that no tag makes get one that nobody wrote.
#[must_use]
pub fn decode(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let tag = text.split(';').next().unwrap_or_default();
    if encode(tag) == bytes { tag.to_owned() } else { format!("broken: {:.80}", text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reads_back_and_a_part_of_it_does_not() {
        for tag in ["a", "client 3, number 17", "x/y", "long ones 7"] {
            let bytes = encode(tag);
            assert_eq!(decode(&bytes), tag);
            assert_ne!(decode(&bytes[..bytes.len() - 1]), tag);
            let mut torn = bytes.clone();
            if let Some(last) = torn.last_mut() {
                *last = 0;
            }
            assert_ne!(decode(&torn), tag);
        }
    }
}
