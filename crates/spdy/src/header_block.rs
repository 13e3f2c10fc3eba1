//! Header blocks: names and values, compressed over the whole life of a connection with SPDY's dictionary.
//!
//! Each direction has one zlib stream that every block continues. Source: SPDY/3 draft, section 2.6.10.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use crate::dictionary::DICTIONARY;
use crate::frame::{Headers, SpdyError};

/// The longest block, decompressed.
const BLOCK_BYTES_MAX: usize = 256 * 1024;
/// How much room is made at a time.
const STEP_BYTES: usize = 4 * 1024;

/// Reads the blocks of one direction.
pub(crate) struct Inflater(Decompress);

impl Inflater {
    pub(crate) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// The headers in a block.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let failed = || SpdyError::HeaderBlock("it cannot be decompressed");
        let mut out = Vec::with_capacity(STEP_BYTES);
        loop {
            let (consumed, produced) = (self.0.total_in(), out.len());
            match self.0.decompress_vec(block, &mut out, FlushDecompress::Sync) {
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|_| failed())?;
                }
                Err(_) => return Err(failed()),
            }
            let consumed = usize::try_from(self.0.total_in() - consumed).unwrap_or(usize::MAX);
            block = block.get(consumed..).ok_or_else(failed)?;
            if out.len() > BLOCK_BYTES_MAX {
                return Err(SpdyError::HeaderBlock("it is too long"));
            }
            if out.len() == out.capacity() {
                out.reserve(STEP_BYTES);
            } else if block.is_empty() {
                return Ok(out);
            } else if consumed == 0 && out.len() == produced {
                return Err(failed());
            }
        }
    }
}

/// Writes the blocks of one direction.
pub(crate) struct Deflater(Compress);

impl Deflater {
    pub(crate) fn new() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        // Only a stream that has begun already refuses; without the dictionary the output is longer, but right.
        compress.set_dictionary(&DICTIONARY).unwrap_or_default();
        Self(compress)
    }

    /// The block of these headers.
    pub(crate) fn write(&mut self, headers: &Headers) -> Result<Vec<u8>, SpdyError> {
        let plain = render(headers);
        let mut plain = plain.as_slice();
        let mut out = Vec::with_capacity(plain.len() + 64);
        loop {
            let before = self.0.total_in();
            self.0
                .compress_vec(plain, &mut out, FlushCompress::Sync)
                .map_err(|_| SpdyError::HeaderBlock("it cannot be compressed"))?;
            let consumed = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
            plain = plain.get(consumed..).unwrap_or_default();
            if out.len() < out.capacity() && plain.is_empty() {
                return Ok(out);
            }
            out.reserve(STEP_BYTES);
        }
    }
}

/// Names and values, each with its length before it; several values of a name are joined by NUL.
fn parse(block: &[u8]) -> Result<Headers, SpdyError> {
    let mut rest = block;
    let mut headers = Headers::new();
    let count = number(&mut rest)?;
    for _ in 0..count {
        let name = text(&mut rest)?.to_ascii_lowercase();
        for value in text(&mut rest)?.split('\0') {
            headers.push((name.clone(), value.to_owned()));
        }
    }
    Ok(headers)
}

fn number(rest: &mut &[u8]) -> Result<u32, SpdyError> {
    let (number, tail) = rest.split_first_chunk().ok_or(SpdyError::HeaderBlock("it ends early"))?;
    *rest = tail;
    Ok(u32::from_be_bytes(*number))
}

fn text<'a>(rest: &mut &'a [u8]) -> Result<&'a str, SpdyError> {
    let length = usize::try_from(number(rest)?).unwrap_or(usize::MAX);
    let (text, tail) = rest.split_at_checked(length).ok_or(SpdyError::HeaderBlock("it ends early"))?;
    *rest = tail;
    std::str::from_utf8(text).map_err(|_| SpdyError::HeaderBlock("it is no UTF-8"))
}

fn render(headers: &Headers) -> Vec<u8> {
    let mut joined: Vec<(&str, String)> = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        match joined.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => {
                values.push('\0');
                values.push_str(value);
            }
            None => joined.push((name, value.clone())),
        }
    }
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let mut out = length(joined.len()).to_vec();
    for (name, value) in &joined {
        out.extend_from_slice(&length(name.len()));
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&length(value.len()));
        out.extend_from_slice(value.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests;
