//! The compression of layers and archives, told by their first bytes: gzip, zstd, or nothing.
//!
//! The decoders are written in safe Rust: what they read comes from anywhere, and this process is root. A zstd stream may
//! be of several frames, and of frames that are to be skipped (as zstd:chunked has them). Source: RFC 1952, RFC 8878.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The last four bits of a frame to be skipped may be anything.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];

/// The reader's content, decompressed if need be.
///
/// # Errors
/// It cannot be read.
pub(crate) fn decompress<'a>(mut reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::new();
    reader.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start)?;
    let is_zstd = start == ZSTD
        || (start.get(1..) == Some(&ZSTD_SKIPPED[..]) && start.first().is_some_and(|it| it >> 4 == 5));
    let is_gzip = start.starts_with(&GZIP);
    let whole = Cursor::new(start).chain(reader);
    if is_gzip {
        return Ok(Box::new(flate2::read::MultiGzDecoder::new(whole)));
    }
    if is_zstd {
        return Ok(Box::new(Zstd::new(whole)));
    }
    Ok(Box::new(whole))
}

/// One frame after the other.
struct Zstd<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: Read> Zstd<R> {
    fn new(source: R) -> Self {
        Self { source: BufReader::new(source), decoder: FrameDecoder::new(), is_in_frame: false }
    }

    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.is_in_frame = true;
            }
            while self.decoder.can_collect() < buffer.len() && !self.decoder.is_finished() {
                let more = BlockDecodingStrategy::UptoBytes(buffer.len() - self.decoder.can_collect());
                let decoded = self.decoder.decode_blocks(&mut self.source, more);
                decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            }
            match self.decoder.read(buffer)? {
                0 => self.is_in_frame = false,
                len => return Ok(len),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decompress(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn content_is_the_same_however_it_is_compressed() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let zstd = compress_to_vec(text.as_slice(), CompressionLevel::Fastest);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd].concat();
        for (name, bytes) in [
            ("plain", text.clone()),
            ("gzip", gzip.finish().unwrap()),
            ("zstd", zstd.clone()),
            ("zstd after a frame to be skipped", skipped),
        ] {
            assert!(read(&bytes).unwrap() == text, "{name}");
        }
        let twice = [zstd.clone(), zstd.clone()].concat();
        assert!(read(&twice).unwrap() == [text.clone(), text.clone()].concat(), "two frames");
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(&[0x1f]).unwrap(), [0x1f]);
        for cut in [5, zstd.len() / 2, zstd.len() - 5] {
            assert!(read(&zstd[..cut]).is_err(), "cut at {cut}");
        }
    }
}
