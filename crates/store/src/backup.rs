//! A backup: everything that a store holds at one revision, as a stream that can be checked.
//!
//! ```text
//! knarr-backup 1\n                        the format's version
//! {"revision": ...}\n                     the Head, JSON
//! block*                                  length u32, CRC-32 u32, then that many bytes: kind u8, content
//!   'F'  mode u32, path length u16, path, content          a file that the cluster needs beside its objects
//!   'R'  create revision u64, revision u64, expires i64 (microseconds since the epoch, 0 for never),
//!        key length u16, cause length u32, key, cause, value    one object
//!   'E'  files u64, records u64, SHA-256 of all bytes before this block      the end; nothing follows
//! ```
//!
//! Numbers are little endian. A block's checksum is over its kind and content. A stream without its end is no backup.
//! What is read is bounded: a broken length never asks for more than [`BLOCK_BYTES_MAX`].

use std::io::{self, Read, Write};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Revision;

/// The format's version, which the first line has.
pub const VERSION: u64 = 1;
/// The longest block: far above the largest object.
const BLOCK_BYTES_MAX: u32 = 64 << 20;
const MAGIC: &str = "knarr-backup ";
const LINE_BYTES_MAX: usize = 4096;

/// The head of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The revision of which the objects are a picture.
    pub revision: Revision,
    /// Clients may have seen revisions up to here.
    pub seen: Revision,
    /// The time of the backup, RFC 3339.
    pub created: String,
    /// The version of knarr that made it.
    pub writer: String,
    /// Objects that could not be read and are not in it.
    #[serde(default)]
    pub left_out: u64,
}

/// A file beside the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Relative to the cluster's folder, with `/`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// The content of the entry.
    pub content: Bytes,
}

/// An object as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The revision at which the key was created.
    pub create_revision: Revision,
    /// The revision of the last change.
    pub revision: Revision,
    /// The expiry, in microseconds since the epoch; 0 for never.
    pub expires_us: i64,
    /// The cause of the last change.
    pub cause: Bytes,
}

/// A part of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A file.
    File(File),
    /// An object.
    Record(Record),
}

/// The reason why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It is something else.
    #[error("it is no knarr backup")]
    Foreign,
    /// A newer version wrote it.
    #[error(
        "it has format {0}, this knarr knows up to {VERSION}: use the knarr that wrote it, or a newer one"
    )]
    Newer(u64),
    /// It was cut off or changed.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It cannot be read at all.
    #[error("it cannot be read")]
    Io(#[source] io::Error),
}

/// The writer of a backup.
pub struct Writer<W> {
    out: W,
    sum: Sha256,
    files: u64,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// Begins.
    ///
    /// # Errors
    /// As `out`'s.
    pub fn new(out: W, head: &Head) -> io::Result<Self> {
        let mut writer = Self { out, sum: Sha256::new(), files: 0, records: 0 };
        writer.write(format!("{MAGIC}{VERSION}\n{}\n", serde_json::to_string(head)?).as_bytes())?;
        Ok(writer)
    }

    /// Adds a part.
    ///
    /// # Errors
    /// As the output's; if the part is larger than a block may be.
    pub fn add(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::File(_) => self.files += 1,
            Item::Record(_) => self.records += 1,
        }
        self.block(&encode(item)?)
    }

    /// Ends it; how many objects are in it.
    ///
    /// # Errors
    /// As the output's.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        let mut end = vec![b'E'];
        end.extend_from_slice(&self.files.to_le_bytes());
        end.extend_from_slice(&self.records.to_le_bytes());
        end.extend_from_slice(&self.sum.clone().finalize());
        self.block(&end)?;
        self.out.flush()?;
        Ok((self.out, self.records))
    }

    fn block(&mut self, content: &[u8]) -> io::Result<()> {
        let length = u32::try_from(content.len()).ok().filter(|length| *length <= BLOCK_BYTES_MAX);
        let length =
            length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too large for a block"))?;
        self.write(&length.to_le_bytes())?;
        self.write(&crc32fast::hash(content).to_le_bytes())?;
        self.write(content)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
}

fn encode(item: &Item) -> io::Result<Vec<u8>> {
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a name is too long");
    let mut out = Vec::new();
    match item {
        Item::File(file) => {
            out.push(b'F');
            out.extend_from_slice(&file.mode.to_le_bytes());
            out.extend_from_slice(&u16::try_from(file.path.len()).map_err(too_long)?.to_le_bytes());
            out.extend_from_slice(file.path.as_bytes());
            out.extend_from_slice(&file.content);
        }
        Item::Record(record) => {
            out.push(b'R');
            out.extend_from_slice(&record.create_revision.to_le_bytes());
            out.extend_from_slice(&record.revision.to_le_bytes());
            out.extend_from_slice(&record.expires_us.to_le_bytes());
            out.extend_from_slice(&u16::try_from(record.key.len()).map_err(too_long)?.to_le_bytes());
            out.extend_from_slice(&u32::try_from(record.cause.len()).map_err(too_long)?.to_le_bytes());
            out.extend_from_slice(record.key.as_bytes());
            out.extend_from_slice(&record.cause);
            out.extend_from_slice(&record.value);
        }
    }
    Ok(out)
}

/// The reader of a backup, which checks all of it.
pub struct Reader<R> {
    input: R,
    sum: Sha256,
    files: u64,
    records: u64,
    has_ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// If it is no backup, or a newer version's.
    pub fn new(input: R) -> Result<(Self, Head), BackupError> {
        let mut reader = Self { input, sum: Sha256::new(), files: 0, records: 0, has_ended: false };
        let magic = reader.line().map_err(|_| BackupError::Foreign)?;
        let version = magic.strip_prefix(MAGIC).and_then(|version| version.parse().ok());
        match version.ok_or(BackupError::Foreign)? {
            VERSION => {}
            newer => return Err(BackupError::Newer(newer)),
        }
        let head = reader.line()?;
        let head = serde_json::from_str(&head).map_err(|why| damaged(format!("its head: {why}")))?;
        Ok((reader, head))
    }

    /// The next part; `None` after the last, when all is known to be there and as it was written.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] if it was cut off or changed.
    pub fn next_item(&mut self) -> Result<Option<Item>, BackupError> {
        if self.has_ended {
            return Ok(None);
        }
        let sum = self.sum.clone();
        let content = self.block()?;
        let broken = || damaged("a block has no known form");
        let (kind, rest) = content.split_first().ok_or_else(broken)?;
        match kind {
            b'F' => {
                self.files += 1;
                decode_file(rest).map(|file| Some(Item::File(file))).ok_or_else(broken)
            }
            b'R' => {
                self.records += 1;
                decode_record(rest).map(|record| Some(Item::Record(record))).ok_or_else(broken)
            }
            b'E' => self.end(rest, &sum.finalize()).map(|()| None),
            _ => Err(broken()),
        }
    }

    fn end(&mut self, content: &[u8], sum: &[u8]) -> Result<(), BackupError> {
        let mut expected = self.files.to_le_bytes().to_vec();
        expected.extend_from_slice(&self.records.to_le_bytes());
        expected.extend_from_slice(sum);
        if content != expected {
            return Err(damaged("the checksum over all of it is wrong"));
        }
        self.has_ended = true;
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(damaged("something follows its end")),
            Err(error) => Err(BackupError::Io(error)),
        }
    }

    fn block(&mut self) -> Result<Vec<u8>, BackupError> {
        let mut head = [0; 8];
        self.fill(&mut head)?;
        let (length, sum) = head.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        let (length, sum) = (number(length), number(sum));
        if length > BLOCK_BYTES_MAX {
            return Err(damaged("a block says that it is larger than any can be"));
        }
        let mut content = vec![0; length as usize];
        self.fill(&mut content)?;
        if crc32fast::hash(&content) == sum {
            Ok(content)
        } else {
            Err(damaged("the checksum of a block is wrong"))
        }
    }

    fn line(&mut self) -> Result<String, BackupError> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < LINE_BYTES_MAX {
            self.fill(&mut byte)?;
            if byte == [b'\n'] {
                return String::from_utf8(line).map_err(|_| damaged("its head is no text"));
            }
            line.extend_from_slice(&byte);
        }
        Err(damaged("its head has no end"))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("it was cut off"),
            _ => BackupError::Io(error),
        })?;
        self.sum.update(bytes);
        Ok(())
    }
}

fn damaged(why: impl Into<String>) -> BackupError {
    BackupError::Damaged(why.into())
}

fn decode_file(bytes: &[u8]) -> Option<File> {
    let (mode, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (path, content) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some(File {
        path: std::str::from_utf8(path).ok()?.to_owned(),
        mode: u32::from_le_bytes(*mode),
        content: Bytes::copy_from_slice(content),
    })
}

fn decode_record(bytes: &[u8]) -> Option<Record> {
    let (create, rest) = bytes.split_first_chunk()?;
    let (revision, rest) = rest.split_first_chunk()?;
    let (expires, rest) = rest.split_first_chunk()?;
    let (key_length, rest) = rest.split_first_chunk()?;
    let (cause_length, rest) = rest.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_length)))?;
    let (cause, value) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*cause_length)).ok()?)?;
    Some(Record {
        key: std::str::from_utf8(key).ok()?.to_owned(),
        value: Bytes::copy_from_slice(value),
        create_revision: u64::from_le_bytes(*create),
        revision: u64::from_le_bytes(*revision),
        expires_us: i64::from_le_bytes(*expires),
        cause: Bytes::copy_from_slice(cause),
    })
}

#[cfg(test)]
mod tests;
