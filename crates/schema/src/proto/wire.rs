//! Protobuf's wire format: tags, varints, lengths.

use super::ProtoError;

/// Reads the fields of one message in order.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

/// A field's value as the wire has it.
#[derive(Clone, Copy)]
pub(crate) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    /// Four bytes, which no field of ours is.
    Fixed32,
    Bytes(&'a [u8]),
    /// A group, which is passed over: no field of ours is one.
    Group,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The next field's number and value.
    pub(crate) fn next(&mut self) -> Result<Option<(u16, Wire<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.chunk()?)),
            2 => Wire::Bytes(self.delimited()?),
            3 => {
                self.pass_group()?;
                Wire::Group
            }
            4 => return Err(ProtoError::Malformed("wiretype end group for non-group")),
            5 => {
                self.chunk::<4>()?;
                Wire::Fixed32
            }
            _ => return Err(ProtoError::Malformed("illegal wireType")),
        };
        // No message has a field number above 65535: such a field is unknown, as 0 is.
        match tag >> 3 {
            0 => Err(ProtoError::Malformed("illegal tag 0")),
            number => Ok(Some((u16::try_from(number).unwrap_or(u16::MAX), value))),
        }
    }

    /// Passes over what is left of a group, and the groups in it.
    fn pass_group(&mut self) -> Result<(), ProtoError> {
        let mut open = 1_usize;
        while open > 0 {
            match self.varint()? & 7 {
                0 => drop(self.varint()?),
                1 => drop(self.chunk::<8>()?),
                2 => drop(self.delimited()?),
                3 => open += 1,
                4 => open -= 1,
                5 => drop(self.chunk::<4>()?),
                _ => return Err(ProtoError::Malformed("illegal wireType")),
            }
        }
        Ok(())
    }

    fn delimited(&mut self) -> Result<&'a [u8], ProtoError> {
        let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtoError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtoError::Malformed("integer overflow"))
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>().ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(*chunk)
    }
}

impl<'a> Wire<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], ProtoError> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtoError::Malformed("wrong wireType, expected bytes")),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, ProtoError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ProtoError::Malformed("text is not UTF-8"))
    }

    pub(super) fn number(self) -> Result<u64, ProtoError> {
        match self {
            Wire::Varint(value) => Ok(value),
            _ => Err(ProtoError::Malformed("wrong wireType, expected a number")),
        }
    }

    pub(super) fn double(self) -> Result<f64, ProtoError> {
        match self {
            Wire::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(ProtoError::Malformed("wrong wireType, expected a double")),
        }
    }

    #[expect(clippy::cast_possible_wrap, reason = "protobuf's int64 is the two's complement of a varint")]
    pub(super) fn int(self) -> Result<i64, ProtoError> {
        Ok(self.number()? as i64)
    }
}

fn put_varint(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(Varint::of(value).as_ref());
}

/// An encoded number, where it takes no memory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Varint {
    bytes: [u8; 10],
    length: usize,
}

impl Varint {
    pub(crate) fn of(mut value: u64) -> Self {
        let mut varint = Self { bytes: [0; 10], length: 0 };
        for byte in &mut varint.bytes {
            varint.length += 1;
            let low = u8::try_from(value & 0x7f).unwrap_or_default();
            value >>= 7;
            *byte = if value == 0 { low } else { low | 0x80 };
            if value == 0 {
                break;
            }
        }
        varint
    }
}

impl AsRef<[u8]> for Varint {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn put_tag(out: &mut Vec<u8>, number: u16, kind: u64) {
    put_varint(out, u64::from(number) << 3 | kind);
}

/// Writes a number.
#[expect(clippy::cast_sign_loss, reason = "protobuf's int64 is the two's complement of a varint")]
pub(crate) fn int(out: &mut Vec<u8>, number: u16, value: i64) {
    put_tag(out, number, 0);
    put_varint(out, value as u64);
}

/// Writes a floating-point number.
pub(crate) fn double(out: &mut Vec<u8>, number: u16, value: f64) {
    put_tag(out, number, 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Writes bytes, a text or a message that is encoded already.
pub(crate) fn bytes(out: &mut Vec<u8>, number: u16, value: &[u8]) {
    begin_bytes(out, number, value.len());
    out.extend_from_slice(value);
}

/// Writes what stands before so many bytes.
pub(crate) fn begin_bytes(out: &mut Vec<u8>, number: u16, length: usize) {
    put_tag(out, number, 2);
    put_varint(out, length as u64);
}

/// Writes a message in place; its length is put before it when it is known.
pub(crate) fn nested<R>(out: &mut Vec<u8>, number: u16, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    put_tag(out, number, 2);
    let start = out.len();
    // One byte is enough for most messages; longer ones move.
    out.push(0);
    let result = write(out);
    let length = out.len() - start - 1;
    match (u8::try_from(length), out.get_mut(start)) {
        (Ok(short @ 0..0x80), Some(byte)) => *byte = short,
        _ => {
            out.splice(start..=start, Varint::of(length as u64).as_ref().iter().copied());
        }
    }
    result
}
