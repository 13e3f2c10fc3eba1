//! From frames to bytes.

use bytes::{BufMut, BytesMut};

use crate::frame::{FLAG_FIN, Frame, STREAM_MASK, SpdyError, VERSION, kind};
use crate::header_block::Deflater;

/// Length of the field that says how long a frame is, in bits.
const LENGTH_BITS: u32 = 24;

/// An encoder of the frames of one direction, in the order in which they are sent.
pub struct Encoder(Deflater);

impl Default for Encoder {
    fn default() -> Self {
        Self(Deflater::new())
    }
}

impl Encoder {
    /// Appends a frame to `out`.
    ///
    /// # Errors
    /// If its content is longer than a frame can be (16 MiB).
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), SpdyError> {
        match frame {
            Frame::SynStream { stream, fin, headers } => {
                let block = self.0.write(headers)?;
                control(out, kind::SYN_STREAM, *fin, block.len() + 10)?;
                out.put_u32(stream & STREAM_MASK);
                out.put_u32(0);
                out.put_u16(0);
                out.put_slice(&block);
            }
            Frame::SynReply { stream, fin, headers } => {
                let block = self.0.write(headers)?;
                with_block(out, kind::SYN_REPLY, *stream, *fin, &block)?;
            }
            Frame::Headers { stream, fin, headers } => {
                let block = self.0.write(headers)?;
                with_block(out, kind::HEADERS, *stream, *fin, &block)?;
            }
            Frame::Reset { stream, status } => {
                numbers(out, kind::RST_STREAM, &[stream & STREAM_MASK, *status])?
            }
            Frame::Settings => numbers(out, kind::SETTINGS, &[0])?,
            Frame::Ping(id) => numbers(out, kind::PING, &[*id])?,
            Frame::GoAway { last_stream, status } => {
                numbers(out, kind::GOAWAY, &[last_stream & STREAM_MASK, *status])?;
            }
            Frame::WindowUpdate { stream, bytes } => {
                numbers(out, kind::WINDOW_UPDATE, &[stream & STREAM_MASK, bytes & STREAM_MASK])?;
            }
            Frame::Data { stream, fin, bytes } => {
                let length = length(bytes.len())?;
                out.reserve(bytes.len() + 8);
                out.put_u32(stream & STREAM_MASK);
                out.put_u32(flags(*fin) | length);
                out.put_slice(bytes);
            }
        }
        Ok(())
    }
}

fn flags(fin: bool) -> u32 {
    if fin { u32::from(FLAG_FIN) << LENGTH_BITS } else { 0 }
}

fn length(bytes: usize) -> Result<u32, SpdyError> {
    let length = u32::try_from(bytes).ok().filter(|length| length >> LENGTH_BITS == 0);
    length.ok_or(SpdyError::TooLong(bytes))
}

fn control(out: &mut BytesMut, kind: u16, fin: bool, bytes: usize) -> Result<(), SpdyError> {
    let length = length(bytes)?;
    out.put_u16(VERSION | 0x8000);
    out.put_u16(kind);
    out.put_u32(flags(fin) | length);
    Ok(())
}

fn with_block(out: &mut BytesMut, kind: u16, stream: u32, fin: bool, block: &[u8]) -> Result<(), SpdyError> {
    control(out, kind, fin, block.len() + 4)?;
    out.put_u32(stream & STREAM_MASK);
    out.put_slice(block);
    Ok(())
}

fn numbers(out: &mut BytesMut, kind: u16, numbers: &[u32]) -> Result<(), SpdyError> {
    control(out, kind, false, numbers.len() * 4)?;
    for number in numbers {
        out.put_u32(*number);
    }
    Ok(())
}
