//! Generic netlink: parts of the kernel that are found by name. Source: `include/uapi/linux/genetlink.h`.

use nix::libc;

use super::{ACK, Encoder, Socket, find_attribute};
use crate::{Error, Result};

/// What stands before the attributes of a message.
pub(super) const HEADER_BYTES: usize = 4;
const CONTROL: u16 = 0x10;
const CONTROL_VERSION: u8 = 1;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// A socket, and the number of the part of this name; the kernel loads its module if it has one.
///
/// # Errors
/// `ENOENT` if the kernel has no such part.
pub(super) fn open(name: &str, doing: impl Fn() -> String) -> Result<(Socket, u16)> {
    let mut socket = Socket::open(libc::NETLINK_GENERIC)?;
    let mut request = message(CONTROL, GET_FAMILY, CONTROL_VERSION);
    request.str(FAMILY_NAME, name);
    let answers = socket.request(request, ACK, &doing)?;
    let id =
        answers.iter().find_map(|answer| u16_of(find_attribute(answer.get(HEADER_BYTES..)?, FAMILY_ID)?));
    let missing = || Error::new(doing(), std::io::Error::from_raw_os_error(libc::ENOENT));
    Ok((socket, id.ok_or_else(missing)?))
}

/// A message to the part of this number.
pub(super) fn message(family: u16, command: u8, version: u8) -> Encoder {
    let mut request = Encoder::message(family, 0);
    request.raw(&[command, version, 0, 0]);
    request
}

pub(super) fn u16_of(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}
