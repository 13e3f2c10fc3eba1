//! Power loss: what may be on a disk after it, made from the system calls of the process that wrote.
//!
//! `strace` takes down each write and flush with its bytes, between the lines that the process prints; from any moment
//! of that, images are made of the last flush and any choice of the 512-byte sectors written since.

mod image;
mod trace;

pub use image::{Disk, Power};
pub use trace::{CALLS, Call, NEW, Step, Trace};
