//! From bytes to frames.

use bytes::{Buf, Bytes, BytesMut};

use crate::frame::{FLAG_FIN, Frame, HEAD_BYTES, STREAM_MASK, SpdyError, VERSION, kind};
use crate::header_block::Inflater;

/// The longest control frame; data frames may be of any length.
const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// A decoder that takes bytes in any cut and gives frames. After an error nothing more can be read.
pub struct Decoder {
    buffer: BytesMut,
    inflater: Inflater,
    data: Option<DataFrame>,
}

/// A data frame whose content is being handed on.
#[derive(Clone, Copy)]
struct DataFrame {
    stream: u32,
    fin: bool,
    left: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { buffer: BytesMut::new(), inflater: Inflater::new(), data: None }
    }
}

impl Decoder {
    /// The buffer for what was read; empty it with [`Decoder::next`] before the next read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next frame, or `None` until more bytes have come.
    ///
    /// # Errors
    /// As [`SpdyError`].
    #[expect(clippy::should_implement_trait, reason = "it fails, and goes on after None")]
    pub fn next(&mut self) -> Result<Option<Frame>, SpdyError> {
        loop {
            if let Some(data) = self.data {
                return Ok(self.content(data));
            }
            let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let [a, b, c, d, flags, x, y, z] = *head;
            let (first, length) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([0, x, y, z]));
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if first & !STREAM_MASK == 0 {
                self.buffer.advance(HEAD_BYTES);
                self.data = Some(DataFrame { stream: first, fin: flags & FLAG_FIN != 0, left: length });
                continue;
            }
            let version = u16::from_be_bytes([a & 0x7f, b]);
            if version != VERSION {
                return Err(SpdyError::Version(version));
            }
            if length > CONTROL_BYTES_MAX {
                return Err(SpdyError::TooLong(length));
            }
            if self.buffer.len() < HEAD_BYTES + length {
                return Ok(None);
            }
            self.buffer.advance(HEAD_BYTES);
            let body = self.buffer.split_to(length).freeze();
            if let Some(frame) = self.control(u16::from_be_bytes([c, d]), flags & FLAG_FIN != 0, body)? {
                return Ok(Some(frame));
            }
        }
    }

    /// What is there of a data frame.
    fn content(&mut self, data: DataFrame) -> Option<Frame> {
        let DataFrame { stream, fin, left } = data;
        let bytes = self.buffer.split_to(left.min(self.buffer.len())).freeze();
        if bytes.is_empty() && left > 0 {
            return None;
        }
        let left = left - bytes.len();
        self.data = (left > 0).then_some(DataFrame { left, ..data });
        Some(Frame::Data { stream, fin: fin && left == 0, bytes })
    }

    /// A control frame; `None` for those of types that nobody knows.
    fn control(&mut self, kind: u16, fin: bool, mut body: Bytes) -> Result<Option<Frame>, SpdyError> {
        let number = |body: &mut Bytes| body.try_get_u32().map_err(|_| SpdyError::Malformed("it ends early"));
        Ok(Some(match kind {
            kind::SYN_STREAM => {
                let stream = number(&mut body)? & STREAM_MASK;
                number(&mut body)?;
                body.try_get_u16().map_err(|_| SpdyError::Malformed("it ends early"))?;
                Frame::SynStream { stream, fin, headers: self.inflater.read(&body)? }
            }
            kind::SYN_REPLY => {
                let stream = number(&mut body)? & STREAM_MASK;
                Frame::SynReply { stream, fin, headers: self.inflater.read(&body)? }
            }
            kind::RST_STREAM => {
                Frame::Reset { stream: number(&mut body)? & STREAM_MASK, status: number(&mut body)? }
            }
            kind::SETTINGS => Frame::Settings,
            kind::PING => Frame::Ping(number(&mut body)?),
            kind::GOAWAY => {
                Frame::GoAway { last_stream: number(&mut body)? & STREAM_MASK, status: number(&mut body)? }
            }
            kind::HEADERS => {
                let stream = number(&mut body)? & STREAM_MASK;
                Frame::Headers { stream, fin, headers: self.inflater.read(&body)? }
            }
            kind::WINDOW_UPDATE => Frame::WindowUpdate {
                stream: number(&mut body)? & STREAM_MASK,
                bytes: number(&mut body)? & STREAM_MASK,
            },
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Encoder;

    fn frames() -> Vec<Frame> {
        let headers =
            vec![("streamtype".to_owned(), "data".to_owned()), ("port".to_owned(), "80".to_owned())];
        vec![
            Frame::SynStream { stream: 1, fin: false, headers: headers.clone() },
            Frame::SynReply { stream: 1, fin: true, headers: Vec::new() },
            Frame::Data { stream: 1, fin: false, bytes: Bytes::from_static(b"hello") },
            Frame::Headers { stream: 1, fin: false, headers },
            Frame::Ping(7),
            Frame::WindowUpdate { stream: 0, bytes: 65_536 },
            Frame::Reset { stream: 3, status: 5 },
            Frame::Settings,
            Frame::Data { stream: 1, fin: true, bytes: Bytes::new() },
            Frame::GoAway { last_stream: 1, status: 0 },
        ]
    }

    /// Decodes `bytes` given in pieces of `size`, with the pieces of a data frame joined again.
    fn decode(bytes: &[u8], size: usize) -> Result<Vec<Frame>, SpdyError> {
        let mut decoder = Decoder::default();
        let mut out: Vec<Frame> = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.buffer().extend_from_slice(piece);
            while let Some(frame) = decoder.next()? {
                match (out.last_mut(), &frame) {
                    (
                        Some(Frame::Data { stream, fin: last @ false, bytes }),
                        Frame::Data { stream: same, fin, bytes: more },
                    ) if stream == same && !more.is_empty() => {
                        *bytes = [&bytes[..], more].concat().into();
                        *last = *fin;
                    }
                    _ => out.push(frame),
                }
            }
        }
        Ok(out)
    }

    #[test]
    fn frames_survive_the_wire_in_any_cut() {
        let mut encoder = Encoder::default();
        let mut bytes = BytesMut::new();
        for frame in frames() {
            encoder.encode(&frame, &mut bytes).unwrap();
        }
        for size in [1, 2, 3, 7, 8, 64, bytes.len()] {
            assert_eq!(decode(&bytes, size).unwrap(), frames(), "pieces of {size}");
        }
    }

    #[test]
    fn content_is_handed_on_before_its_frame_is_complete() {
        let mut decoder = Decoder::default();
        decoder.buffer().extend_from_slice(&[0, 0, 0, 5, FLAG_FIN, 0xff, 0xff, 0xff, b'a']);
        let first = Frame::Data { stream: 5, fin: false, bytes: Bytes::from_static(b"a") };
        assert_eq!(decoder.next().unwrap(), Some(first));
        assert_eq!(decoder.next().unwrap(), None);
    }

    #[test]
    fn frames_of_unknown_type_are_passed_over() {
        let unknown = [0x80, 3, 0, 200, 0, 0, 0, 2, 1, 2];
        let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9];
        assert_eq!(decode(&[&unknown[..], &ping].concat(), 100).unwrap(), [Frame::Ping(9)]);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let check = |bytes: &[u8], expect: &str| {
            assert_eq!(decode(bytes, 100).unwrap_err().to_string(), expect);
        };
        check(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9], "frame of SPDY version 2, not 3");
        check(&[0x80, 3, 0, 6, 0, 0, 0, 2, 0, 0], "malformed frame: it ends early");
        check(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff], "control frame of 16777215 bytes is too long");
        check(
            &[0x80, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0, 1, 1, 1],
            "malformed header block: it cannot be decompressed",
        );
    }
}
