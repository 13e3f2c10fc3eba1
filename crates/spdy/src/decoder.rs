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
mod tests;
